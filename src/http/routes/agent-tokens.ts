import type { FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { joinAnswerSchema, joinRequestSchema, whoAmIAnswerSchema } from '../../agents/join-protocol.ts';
import { JOIN_TTL_MS } from '../../agents/join-tokens.ts';
import { fleetName } from '../../agents/protocol.ts';
import type { AgentIdentity } from '../../agents/tokens.ts';
import { AppError } from '../../errors.ts';
import { audit } from '../../sessions/audit.ts';
import { bearerOf } from '../auth.ts';
import type { Rooms } from '../rooms.ts';
import { ACTOR, epochMs, notFound, refusals, refusalsOfChange, refusalsWithId } from './shapes.ts';

const tokenRequest = z.strictObject({
  agentId: fleetName.optional().describe('absent: the machine names itself when it joins'),
  pools: z.array(fleetName).min(1).max(32).default(['default']),
  labels: z.record(z.string().min(1).max(64), z.string().max(64)).default({}),
  permanent: z.boolean().default(false).describe('the credential itself, at once, instead of a join token'),
  ttlMs: z.number().int().min(JOIN_TTL_MS.least).max(JOIN_TTL_MS.most).optional(),
});

const tokenAnswer = z.object({
  agentId: z.string().optional(),
  agentToken: z.string().optional(),
  joinToken: z.string().optional(),
  expiresAt: epochMs.optional(),
  gatewayUrl: z.string().optional().describe('where agents reach this gateway, as its settings say'),
});

/** A join is a few short texts. */
const JOIN_BYTES = 4_096;
const PRIVATE = { 'cache-control': 'no-store' } as const;

/** The administrator's side of the agents' credentials. */
export const agentTokenRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['agents'];
    app.post('/api/agents/tokens', {
      schema: {
        tags,
        summary: 'Issue a join token, single-use and short-lived, or (`permanent`) a credential; shown once',
        body: tokenRequest,
        response: { 201: tokenAnswer, ...refusals },
      },
      handler: async ({ body }, reply) =>
        reply
          .code(201)
          .headers(PRIVATE)
          .send(body.permanent ? await permanentToken(rooms, body) : await joinToken(rooms, body)),
    });
    app.post('/api/agents/:id/revoke', {
      schema: {
        tags,
        summary: 'All credentials of an agent, and join tokens for it, stop working at once',
        params: z.object({ id: fleetName }),
        response: { 200: z.object({ agentId: z.string(), revoked: z.number().int() }), ...refusalsWithId },
      },
      handler: async ({ params: { id: agentId } }) => {
        const revoked = await rooms.joins.revokeAgent(agentId, ACTOR);
        if (revoked === undefined) throw notFound('agent', agentId);
        return { agentId, revoked };
      },
    });
  };

/** The machine's side: joining, for whoever holds a join token, and asking who one is. */
export const agentJoinRoutes =
  ({ joins, tokens, registry, clock }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['agent protocol'];
    const who = new WeakMap<FastifyRequest, AgentIdentity>();
    app.post('/api/agent/join', {
      bodyLimit: JOIN_BYTES,
      schema: {
        tags,
        security: [],
        summary: "Exchange a join token for the agent's own credential",
        body: joinRequestSchema,
        response: { 200: joinAnswerSchema, ...refusalsOfChange },
      },
      handler: async ({ body }, reply) => reply.headers(PRIVATE).send(await joins.redeem(body)),
    });
    app.post('/api/agent/whoami', {
      bodyLimit: JOIN_BYTES,
      // Before the body is read, as with every call of an agent.
      onRequest: async (request) => {
        who.set(request, await tokens.identify(bearerOf(request.headers)));
      },
      schema: {
        tags,
        security: [{ agent: [] }],
        summary: 'Whose token this is, and when that agent was last heard of',
        response: { 200: whoAmIAnswerSchema, ...refusals },
      },
      handler: async (request) => {
        const identity = who.get(request)!;
        const agent = (await registry.list()).find(({ agentId }) => agentId === identity.agentId);
        const instance = agent ? { host: agent.host, online: agent.online, lastSeenAt: agent.lastSeenAt } : null;
        return { ...identity, serverTime: clock.now(), instance };
      },
    });
  };

type TokenRequest = z.infer<typeof tokenRequest>;

async function joinToken({ joins, settings }: Rooms, { agentId, pools, labels, ttlMs }: TokenRequest) {
  const issued = await joins.issue({ agentId, pools, labels }, ttlMs ?? JOIN_TTL_MS.default, ACTOR);
  return { ...issued, ...(agentId === undefined ? {} : { agentId }), gatewayUrl: settings.publicUrl };
}

async function permanentToken({ store, tokens }: Rooms, { agentId, pools, labels, ttlMs }: TokenRequest) {
  if (agentId === undefined)
    throw new AppError('invalid_request', 'agentId: a permanent token needs one', { field: 'agentId' });
  if (ttlMs !== undefined)
    throw new AppError('invalid_request', 'ttlMs: a permanent token has no end', { field: 'ttlMs' });
  return store.transact('http.agent_token', async (tx) => {
    await audit(tx, { actor: ACTOR, action: 'agent_token.issued', target: agentId, data: { pools, labels } });
    const { token } = await tokens.issueIn(tx, { agentId, pools, labels });
    return { agentId, agentToken: token };
  });
}
