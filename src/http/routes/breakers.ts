import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { durationMs } from '../../config/values.ts';
import { type BreakerView, listBreakers, probingTask } from '../../tasks/breaker-read.ts';
import { BREAKER_STATES } from '../../tasks/breaker-state.ts';
import type { Rooms } from '../rooms.ts';
import { ACTOR, epochMs, notFound, publicId, refusals, refusalsWithId } from './shapes.ts';

const YEAR_MS = 365 * 86_400_000;

const breakerSchema = z.object({
  name: z.string(),
  state: z.enum(BREAKER_STATES),
  reason: z
    .string()
    .optional()
    .describe('why it is not closed: failure_rate, probe_failed, probe_rate_limited, operator'),
  calls: z.number().int().describe('that count, in the window that ends now; 0 unless closed'),
  failures: z.number().int(),
  openedAt: epochMs.optional(),
  untilAt: epochMs.optional().describe('from then on one run may try'),
  probe: z.object({ runId: publicId, taskId: publicId.optional(), untilAt: epochMs }).optional(),
  lastError: z.string().optional(),
  lastFailureAt: epochMs.optional(),
  settings: z.object({
    threshold: z.number(),
    windowMs: z.number().int(),
    minimum: z.number().int(),
    cooldownMs: z.number().int(),
  }),
  templates: z
    .array(z.object({ id: z.string(), onOpen: z.enum(['wait', 'fail']) }))
    .describe('loaded ones that name it'),
});

const nameParams = z.object({ name: z.string().min(1).max(64) });
const why = z.string().min(1).max(500).optional().describe('kept in the audit');
const resetBody = z.strictObject({ why }).prefault({});
const openBody = z
  .strictObject({
    for: z
      .union([z.number().int(), z.string()])
      .transform((value) => (typeof value === 'string' ? durationMs(value) : value) ?? 0)
      .refine((ms) => ms >= 1_000 && ms <= YEAR_MS, 'must be milliseconds or a duration, 1s to 365d')
      .optional()
      .describe('default 1h'),
    why,
  })
  .prefault({});
const DEFAULT_OPEN_MS = 3_600_000;

/** Circuit breakers: how they are, and opening and closing them by hand. */
export const breakerRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['breakers'];
    app.get('/api/breakers', {
      schema: {
        tags,
        summary: 'Circuit breakers, by name',
        response: { 200: z.object({ breakers: z.array(breakerSchema) }), ...refusals },
      },
      handler: async () => {
        const views = await listBreakers(rooms.store, rooms.breakers.policies, rooms.clock.now());
        return { breakers: await Promise.all(views.map((view) => shown(rooms, view))) };
      },
    });
    app.get('/api/breakers/:name', {
      schema: {
        tags,
        summary: 'One circuit breaker',
        params: nameParams,
        response: { 200: breakerSchema, ...refusalsWithId },
      },
      handler: ({ params: { name } }) => one(rooms, name),
    });
    await app.register(changingRoutes(rooms));
  };

const changingRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const { store, breakers } = rooms;
    const tags = ['breakers'];
    // Every field may be left out, and so may the body.
    app.addHook('preValidation', async (request) => {
      request.body ??= {};
    });
    app.post('/api/breakers/:name/reset', {
      schema: {
        tags,
        summary: 'Close it, with nothing counted: what waits behind it goes on',
        params: nameParams,
        body: resetBody,
        response: { 200: breakerSchema, ...refusalsWithId },
      },
      handler: async ({ params: { name }, body }) => {
        const order = { name, by: ACTOR, why: body.why ?? null };
        if (!(await store.transact('http.breaker_reset', (tx) => breakers.reset(tx, order))))
          throw notFound('breaker', name);
        return one(rooms, name);
      },
    });
    app.post('/api/breakers/:name/open', {
      schema: {
        tags,
        summary: 'Keep tasks away from the service behind it, from now on for so long; then one run may try',
        params: nameParams,
        body: openBody,
        response: { 200: breakerSchema, ...refusalsWithId },
      },
      handler: async ({ params: { name }, body }) => {
        const order = { name, by: ACTOR, why: body.why ?? null };
        const forMs = body.for ?? DEFAULT_OPEN_MS;
        if (!(await store.transact('http.breaker_open', (tx) => breakers.open(tx, order, forMs))))
          throw notFound('breaker', name);
        return one(rooms, name);
      },
    });
  };

async function one(rooms: Rooms, name: string): Promise<z.infer<typeof breakerSchema>> {
  const views = await listBreakers(rooms.store, rooms.breakers.policies, rooms.clock.now());
  const view = views.find(({ breaker }) => breaker.name === name);
  if (!view) throw notFound('breaker', name);
  return shown(rooms, view);
}

async function shown({ store }: Rooms, view: BreakerView): Promise<z.infer<typeof breakerSchema>> {
  const { breaker, state, calls, failures, templates } = view;
  const taskId = await probingTask(store, breaker);
  const { threshold, windowMs, minimum, cooldownMs, probeRun, probeUntilAt } = breaker;
  return {
    name: breaker.name,
    state,
    reason: breaker.reason ?? undefined,
    calls,
    failures,
    openedAt: breaker.openedAt ?? undefined,
    untilAt: breaker.untilAt ?? undefined,
    probe:
      probeRun === null
        ? undefined
        : {
            runId: store.ids.encode(probeRun),
            taskId: taskId === undefined ? undefined : store.ids.encode(taskId),
            untilAt: probeUntilAt!,
          },
    lastError: breaker.lastError ?? undefined,
    lastFailureAt: breaker.lastFailureAt ?? undefined,
    settings: { threshold, windowMs, minimum, cooldownMs },
    templates: templates.map(({ id, onOpen }) => ({ id, onOpen })),
  };
}
