import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { AppError } from '../../errors.ts';
import { audit } from '../../sessions/audit.ts';
import type { Rooms } from '../rooms.ts';
import { ACTOR, epochMs, refusals } from './shapes.ts';

const name = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, 'must be 1 to 64 letters, digits, dots, dashes or underscores');

const agentSchema = z.object({
  agentId: z.string(),
  online: z.boolean(),
  lastSeenAt: epochMs,
  version: z.string(),
  host: z.string(),
  pools: z.array(z.string()),
  labels: z.record(z.string(), z.string()),
  runtimes: z.array(z.string()),
  concurrency: z.number().int(),
  load: z.number().nullable(),
  activeRuns: z.number().int(),
});

const tokenRequest = z.strictObject({
  agentId: name,
  pools: z.array(name).min(1).max(32).default(['default']),
  labels: z.record(z.string().min(1).max(64), z.string().max(64)).default({}),
  permanent: z.boolean().default(false),
});

/** Listing agents and issuing their tokens. */
export const agentRoutes =
  ({ registry, tokens, store }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['agents'];
    app.get('/api/agents', {
      schema: {
        tags,
        summary: 'Agents that ever registered',
        response: { 200: z.object({ agents: z.array(agentSchema) }), ...refusals },
      },
      handler: async () => ({ agents: await registry.list() }),
    });
    app.post('/api/agents/tokens', {
      schema: {
        tags,
        summary: 'Issue a token that fixes agent id, pools and labels; it is shown once',
        body: tokenRequest,
        response: { 201: z.object({ agentId: z.string(), agentToken: z.string() }), ...refusals },
      },
      handler: async ({ body: { agentId, pools, labels, permanent } }, reply) => {
        if (!permanent) {
          throw new AppError(
            'invalid_request',
            'permanent: join tokens are not available yet in this version; say permanent: true',
            { field: 'permanent' },
          );
        }
        // Before the token: an entry without a token harms nobody, a token without an entry is a hole.
        await store.transact('http.agent_token', (tx) =>
          audit(tx, { actor: ACTOR, action: 'agent_token.issued', target: agentId, data: { pools, labels } }),
        );
        return reply
          .code(201)
          .header('cache-control', 'no-store')
          .send({ agentId, agentToken: await tokens.issue({ agentId, pools, labels }) });
      },
    });
  };
