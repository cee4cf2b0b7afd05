import type { FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { effectRequestSchemas } from '../../agents/protocol.ts';
import type { AgentIdentity } from '../../agents/tokens.ts';
import { AppError } from '../../errors.ts';
import type { EffectBeginAnswer, EffectMarkAnswer } from '../../tasks/effect-words.ts';
import { beginEffects, type EffectCaller, type EffectMark, markEffectsVerb } from '../../tasks/effects.ts';
import { bearerOf } from '../auth.ts';
import type { Rooms } from '../rooms.ts';
import { refusals } from './shapes.ts';

/** Whatever the state makes of a call is an answer, as with reports; a refusal is for calls that are malformed or not the agent's. */
const beginAnswer = z.object({
  answer: z.enum(['first', 'done', 'failed', 'uncertain', 'busy', 'conflict', 'lease_lost', 'rejected']),
  repeat: z.boolean().optional(),
  result: z.string().nullable().optional(),
  error: z.string().nullable().optional(),
  policy: z.enum(['ask', 'fail']).optional(),
  since: z.number().int().optional(),
  reason: z.string().optional(),
});
const markAnswer = z.object({
  answer: z.enum(['done', 'failed', 'again', 'refused', 'unknown', 'lease_lost', 'rejected']),
  result: z.string().nullable().optional(),
  error: z.string().nullable().optional(),
  reason: z.string().optional(),
});

/** Side effects, as agents ask for the programs they run (docs/effects.md). */
export const agentEffectRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const who = new WeakMap<FastifyRequest, AgentIdentity>();
    // Before the body is read, so that strangers cannot make the gateway read one.
    app.addHook('onRequest', async (request) => {
      who.set(request, await rooms.tokens.identify(bearerOf(request.headers)));
    });
    const schema = { tags: ['agent protocol'], security: [{ agent: [] }] };
    app.post('/api/agent/effects/begin', {
      schema: {
        ...schema,
        summary: 'A run is about to do something that must not be done twice',
        body: effectRequestSchemas.begin,
        response: { 200: beginAnswer, ...refusals },
      },
      handler: async (request) => {
        const { type, key, digest = null, policy } = request.body;
        const caller = await callerOf(rooms, who.get(request)!, request.body);
        const [answer] = await rooms.store.write(beginEffects, [{ ...caller, type, key, digest, policy }]);
        return answer as EffectBeginAnswer;
      },
    });
    app.post('/api/agent/effects/done', {
      schema: {
        ...schema,
        summary: 'The effect took place',
        body: effectRequestSchemas.done,
        response: { 200: markAnswer, ...refusals },
      },
      handler: async (request) => {
        const { type, key, result = null } = request.body;
        return mark(rooms, who.get(request)!, request.body, { type, key, outcome: 'success', result, error: null });
      },
    });
    app.post('/api/agent/effects/fail', {
      schema: {
        ...schema,
        summary: 'The effect failed for good, or (`again`) certainly did not take place and may be tried again',
        body: effectRequestSchemas.fail,
        response: { 200: markAnswer, ...refusals },
      },
      handler: async (request) => {
        const { type, key, error = null, again } = request.body;
        const outcome = again ? 'again' : 'fail';
        return mark(rooms, who.get(request)!, request.body, { type, key, outcome, result: null, error });
      },
    });
  };

type Head = { agentId: string; instanceId: string; runId: string; leaseToken: string };

async function mark(
  rooms: Rooms,
  identity: AgentIdentity,
  head: Head,
  word: Omit<EffectMark, keyof EffectCaller>,
): Promise<EffectMarkAnswer> {
  const caller = await callerOf(rooms, identity, head);
  return (await rooms.store.write(markEffectsVerb, [{ ...caller, ...word }]))[0]!;
}

/** @throws AppError forbidden, session_replaced, conflict (has to register first), invalid_request */
async function callerOf({ registry, store }: Rooms, identity: AgentIdentity, head: Head): Promise<EffectCaller> {
  registry.contact(await registry.instance(identity, head.agentId, head.instanceId), null);
  const runId = store.ids.decode(head.runId);
  if (runId === undefined) throw new AppError('invalid_request', 'runId: this is no run id', { field: 'runId' });
  return { agentId: identity.agentId, runId, leaseToken: head.leaseToken };
}
