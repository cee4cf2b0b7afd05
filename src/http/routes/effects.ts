import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { EFFECT_LIMITS, effectName } from '../../agents/protocol.ts';
import { AppError } from '../../errors.ts';
import { type EffectRecord, getEffect, listEffects } from '../../tasks/effect-read.ts';
import { resolveEffectsVerb } from '../../tasks/effect-resolve.ts';
import { EFFECT_POLICIES, EFFECT_RESOLUTIONS, EFFECT_STATES } from '../../tasks/effect-words.ts';
import type { Rooms } from '../rooms.ts';
import {
  ACTOR,
  epochMs,
  filterId,
  nextCursor,
  pageOf,
  pageQuery,
  publicId,
  refusals,
  refusalsOfChange,
  refusalsWithId,
} from './shapes.ts';

/** `EffectRecord` of src/tasks/effect-read.ts. */
const effectSchema = z.object({
  effectId: publicId,
  type: z.string(),
  key: z.string(),
  state: z.enum(EFFECT_STATES),
  uncertain: z.boolean().describe('begun by a run that is over and never said how it ended: a person may resolve it'),
  policy: z.enum(EFFECT_POLICIES),
  digest: z.string().optional(),
  result: z.string().optional(),
  error: z.string().optional(),
  firstTaskId: publicId,
  firstRunId: publicId,
  taskId: publicId,
  runId: publicId.optional().describe('absent: given back; whoever begins it next is the first'),
  begins: z.number().int(),
  waiting: z.array(publicId).describe('tasks that are blocked until somebody resolves it'),
  late: z
    .object({ outcome: z.string(), at: epochMs, result: z.string().optional(), error: z.string().optional() })
    .optional(),
  resolvedBy: z.string().optional(),
  resolvedAt: epochMs.optional(),
  reason: z.string().optional(),
  createdAt: epochMs,
  updatedAt: epochMs,
});

const listQuery = z.strictObject({
  state: z.enum(EFFECT_STATES).optional(),
  type: z.string().max(EFFECT_LIMITS.type).optional(),
  task: z.string().max(32).optional().describe('effects that this task began, first or last'),
  ...pageQuery,
});

const resolveBody = z
  .strictObject({
    state: z.enum(EFFECT_RESOLUTIONS).describe('AGAIN: it did not take place; whoever begins it next is the first'),
    result: z.string().max(EFFECT_LIMITS.result).optional().describe('with SUCCESS: what a repeat is told'),
    reason: z.string().trim().min(1).max(EFFECT_LIMITS.reason),
  })
  .refine(({ state, result }) => result === undefined || state === 'SUCCESS', {
    path: ['result'],
    message: 'belongs to the state SUCCESS',
  });

/** Side effects of programs: reading them, and a person's word about those that nobody is sure of. */
export const effectRoutes =
  ({ store, emit }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['effects'];
    const resolve = resolveEffectsVerb(emit);
    app.get('/api/effects', {
      schema: {
        tags,
        summary: 'List side effects, the newest first',
        querystring: listQuery,
        response: { 200: z.object({ effects: z.array(effectSchema), next: nextCursor }), ...refusals },
      },
      handler: async ({ query: { state, type, task, cursor, limit } }) => {
        const places = { taskId: filterId(store.ids, task, 'task'), before: filterId(store.ids, cursor, 'cursor') };
        const filter = { state: state?.toLowerCase(), type, ...places, limit: limit + 1 };
        const { items, next } = pageOf(await listEffects(store, store.ids, filter), limit, (effect) => effect.effectId);
        return { effects: items, next };
      },
    });
    app.get('/api/effects/:type/:key', {
      schema: {
        tags,
        summary: 'One side effect',
        params: z.object(effectName),
        response: { 200: effectSchema, ...refusalsWithId },
      },
      handler: async ({ params: { type, key } }) => found(await getEffect(store, store.ids, type, key), type, key),
    });
    app.post('/api/effects/:type/:key/resolve', {
      schema: {
        tags,
        summary: 'Say whether an effect took place; tasks that are blocked because of it go on',
        params: z.object(effectName),
        body: resolveBody,
        response: {
          200: effectSchema.extend({ changed: z.boolean(), released: z.array(publicId) }),
          ...refusalsOfChange,
        },
      },
      handler: async ({ params: { type, key }, body: { state, result = null, reason } }) => {
        const [answer] = await store.write(resolve, [{ type, key, resolution: state, result, reason, by: ACTOR }]);
        if (answer!.result === 'held') {
          const { taskId, runId } = answer!;
          throw new AppError(
            'conflict',
            `run ${store.ids.encode(runId)} of task ${store.ids.encode(taskId)} is at it right now; wait for its end or cancel the task`,
          );
        }
        const effect = found(await getEffect(store, store.ids, type, key), type, key);
        const released = answer!.result === 'unknown' ? [] : answer!.released.map((id) => store.ids.encode(id));
        return { ...effect, changed: answer!.result === 'resolved', released };
      },
    });
  };

function found(effect: EffectRecord | undefined, type: string, key: string): EffectRecord {
  if (effect) return effect;
  throw new AppError('not_found', `there is no effect ${type} ${JSON.stringify(key)}`);
}
