import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { agentSchema, agentShown } from '../agent-shapes.ts';
import type { Rooms } from '../rooms.ts';
import { refusals } from './shapes.ts';

/** Listing agents; their tokens are in agent-tokens.ts. */
export const agentRoutes =
  ({ registry, releases }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['agents'];
    app.get('/api/agents', {
      schema: {
        tags,
        summary: 'Agents that ever registered',
        response: { 200: z.object({ agents: z.array(agentSchema) }), ...refusals },
      },
      handler: async () => ({
        agents: (await registry.list()).map((agent) => ({ ...agentShown(agent), ...releases.noteOf(agent.agentId) })),
      }),
    });
  };
