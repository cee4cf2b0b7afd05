import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { changeDrain } from '../../agents/drains.ts';
import { AGENT_ID } from '../../agents/protocol.ts';
import { agentSchema, agentShown } from '../agent-shapes.ts';
import type { Rooms } from '../rooms.ts';
import { ACTOR, notFound, refusalsWithId } from './shapes.ts';

const params = z.object({ id: z.string().regex(AGENT_ID, 'must be an agent id') });
const body = z
  .strictObject({ why: z.string().min(1).max(500).optional().describe('kept in the audit, and shown with what waits') })
  .prefault({});

/** One agent takes nothing new, or goes on. */
export const agentDrainRoutes =
  ({ registry, store, log }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    // Every field may be left out, and so may the body.
    app.addHook('preValidation', async (request) => {
      if (request.method === 'POST') request.body ??= {};
    });
    for (const [verb, on] of [
      ['drain', true],
      ['resume', false],
    ] as const) {
      app.post(`/api/agents/:id/${verb}`, {
        schema: {
          tags: ['agents'],
          summary: on
            ? 'An agent finishes what it runs and takes nothing new until it is resumed, also across restarts'
            : 'Let a drained agent take work again',
          params,
          body,
          response: { 200: agentSchema, ...refusalsWithId },
        },
        handler: async ({ params: { id }, body: { why } }) => {
          const order = { agentId: id, on, by: ACTOR, why: why ?? null };
          const places = { roster: registry.roster, log };
          const answer = await store.transact('http.agent_drain', (tx) => changeDrain(tx, order, places));
          const agent = answer && (await registry.list()).find(({ agentId }) => agentId === id);
          if (!agent) throw notFound('agent', id);
          return agentShown(agent);
        },
      });
    }
  };
