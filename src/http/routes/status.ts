import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { FINAL_STATES, isFinal, TASK_STATES } from '../../tasks/states.ts';
import type { FinishedTasks } from '../../telemetry/finished.ts';
import { createMetrics, type Figures } from '../../telemetry/metrics.ts';
import { REFUSAL_REASONS } from '../../telemetry/refusals.ts';
import type { Rooms } from '../rooms.ts';
import { figuresOf } from './figures.ts';
import { adminOnly, localOrAdmin } from './guard.ts';
import { readinessOf } from './readiness.ts';
import { epochMs, refusals } from './shapes.ts';

const count = z.number().int();
const counts = z.record(z.string(), count);

const readinessSchema = z.object({
  ready: z.boolean(),
  draining: z
    .object({ since: epochMs, by: z.string(), why: z.string().optional() })
    .optional()
    .describe('nothing new starts, because a person has said so'),
  store: z.object({ ok: z.boolean(), problem: z.string().optional() }),
  channels: z.array(
    z.object({
      channel: z.string(),
      account: z.string(),
      ok: z.boolean(),
      ageMs: z.number().optional(),
      pollAgeMs: z.number().optional().describe('since the last completed poll, where the channel polls'),
      problem: z.string().optional(),
    }),
  ),
});

const statsSchema = z.object({
  version: z.string(),
  startedAt: epochMs,
  uptimeMs: count,
  tasks: counts.describe('not over, by state'),
  finished: counts.describe('ended since the start, by final state'),
  outbox: counts.describe('not delivered, by state'),
  inboxNew: count,
  oldest: z.object({ task: epochMs.nullable(), outbox: epochMs.nullable(), inbox: epochMs.nullable() }),
  agents: z.object({ online: count, offline: count }),
  parkedPulls: count,
  store: z.object({ transactions: count, units: count, rollbacks: count, walBytes: count }),
});

/** States of messages that need looking at; the others are history. */
const OUTBOX_STATES = ['pending', 'sending', 'unknown', 'dead', 'expired'] as const;

/** How the gateway is: `/healthz`, `/readyz`, `/metrics`, `/api/stats`. */
export const statusRoutes =
  (rooms: Rooms, finished: FinishedTasks | undefined): FastifyPluginAsyncZod =>
  async (app) => {
    const figures = figuresOf(rooms, finished);
    app.get('/healthz', {
      schema: {
        tags: ['status'],
        summary: 'The process answers',
        security: [],
        response: { 200: z.object({ ok: z.literal(true), version: z.string() }) },
      },
      handler: async () => ({ ok: true as const, version: rooms.version }),
    });
    const ready = readinessOf(rooms);
    app.get('/readyz', {
      onRequest: localOrAdmin(rooms),
      schema: {
        tags: ['status'],
        summary: 'The store takes writes and every channel works; 503 otherwise. Open to callers on the same machine',
        response: { 200: readinessSchema, 503: readinessSchema, 401: refusals[401] },
      },
      handler: async (_request, reply) => {
        const state = await ready();
        return reply
          .code(state.ready ? 200 : 503)
          .header('cache-control', 'no-store')
          .send(state);
      },
    });
    app.get('/api/stats', {
      onRequest: adminOnly(rooms),
      schema: { tags: ['status'], summary: 'Figures of the gateway', response: { 200: statsSchema, ...refusals } },
      handler: async () => statsOf(rooms, await figures()),
    });
    await app.register(metricsRoute(rooms, figures));
  };

const metricsRoute =
  (rooms: Rooms, figures: () => Promise<Figures>): FastifyPluginAsyncZod =>
  async (app) => {
    const liveStates = TASK_STATES.filter((state) => !isFinal(state));
    const metrics = createMetrics(rooms.version, {
      liveStates,
      finalStates: FINAL_STATES,
      outboxStates: OUTBOX_STATES,
      refusals: REFUSAL_REASONS,
    });
    app.get('/metrics', {
      onRequest: localOrAdmin(rooms),
      schema: {
        tags: ['status'],
        summary: 'Prometheus metrics. Open to callers on the same machine',
        produces: ['text/plain'],
        response: {
          200: { description: 'text format', content: { 'text/plain': { schema: z.string() } } },
          401: refusals[401],
        },
      },
      handler: async (_request, reply) => {
        const text = await metrics.text(await figures());
        // Past the serializer: it would quote the text as JSON.
        return reply
          .type(metrics.contentType)
          .serializer((payload: unknown) => String(payload))
          .send(text);
      },
    });
  };

function statsOf({ version, clock, startedAt }: Rooms, figures: Figures): z.infer<typeof statsSchema> {
  const { now: _now, breakers: _breakers, lanes: _lanes, tasks, finished, outbox, ...rest } = figures;
  const plain = {
    tasks: Object.fromEntries(tasks),
    finished: Object.fromEntries(finished),
    outbox: Object.fromEntries(outbox),
  };
  return { version, startedAt, uptimeMs: clock.now() - startedAt, ...rest, ...plain };
}
