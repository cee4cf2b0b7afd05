import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { AppError } from '../../errors.ts';
import { getSession } from '../../sessions/sessions.ts';
import { type Gate, type GateOrder, listGates } from '../../tasks/controls.ts';
import { ANY, GATE_KINDS, type GateKind } from '../../tasks/gate-settings.ts';
import { knownLanes, knownPools, laneViews, poolViews } from '../controls.ts';
import type { Rooms } from '../rooms.ts';
import { ACTOR, epochMs, notFound, refusals, refusalsWithId } from './shapes.ts';

const MAX_CONCURRENCY = 100_000;

const name = z.string().min(1).max(256);
const why = z.string().min(1).max(500).optional().describe('kept in the audit, and shown with what waits');
const concurrency = z
  .number()
  .int()
  .min(0)
  .max(MAX_CONCURRENCY)
  .nullable()
  .optional()
  .describe('running at once; 0: none; null: no limit set here, what the template or the lane has by itself holds');
const pauseSchema = z.object({ at: epochMs, by: z.string(), why: z.string().optional() });
const whyBody = z.strictObject({ why }).prefault({});
const limitBody = z
  .strictObject({ concurrency, paused: z.boolean().optional(), why })
  .refine((body) => body.concurrency !== undefined || body.paused !== undefined, {
    path: ['concurrency'],
    message: 'concurrency or paused is needed',
  });

const gateSchema = z.object({
  kind: z.enum(GATE_KINDS),
  name: z.string(),
  concurrency: z.number().int().nullable(),
  paused: pauseSchema.optional(),
});
const laneSchema = z.object({
  name: z.string(),
  concurrency: z.number().int().nullable().describe('null: no limit'),
  from: z
    .enum(['set', 'default', 'agents', 'none'])
    .describe('a person, the built-in default, what the online agents can take together (main), or no limit'),
  paused: pauseSchema.optional(),
  running: z.number().int(),
  waitingSince: epochMs.optional().describe('about: when the first task that is due and not taken was due'),
});
const poolSchema = z.object({
  name: z.string(),
  agents: z.number().int().describe('online'),
  capacity: z.number().int().describe('runs that its online agents can take together'),
  running: z.number().int(),
  concurrency: z.number().int().nullable().describe('set by a person; null: no limit'),
  paused: pauseSchema.optional(),
});
const drainSchema = z.object({ draining: z.boolean(), since: epochMs.optional(), by: z.string().optional(), why });

/** Limits, pauses, lanes and the drain: what a person lets start. */
export const controlRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    // Every field may be left out, and so may the body.
    app.addHook('preValidation', async (request) => {
      if (request.method === 'POST') request.body ??= {};
    });
    await app.register(limitRoutes(rooms));
    await app.register(pauseRoutes(rooms));
    await app.register(laneRoutes(rooms));
    await app.register(drainRoutes(rooms));
  };

const limitRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['limits'];
    app.get('/api/limits', {
      schema: {
        tags,
        summary: 'Everything that a person has limited or paused',
        response: { 200: z.object({ limits: z.array(gateSchema) }), ...refusals },
      },
      handler: async () => ({ limits: (await listGates(rooms.store)).map(gateShown) }),
    });
    app.post('/api/limits/:kind/:name', {
      schema: {
        tags,
        summary: 'Limit, pause or resume a template, an owner (a session key, or * for each of them), a pool or a lane',
        params: z.object({ kind: z.enum(['template', 'owner', 'pool', 'lane']), name }),
        body: limitBody,
        response: { 200: gateSchema, ...refusalsWithId },
      },
      handler: async ({ params, body }) => gateShown(await change(rooms, { ...params, ...body })),
    });
  };

const pauseRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    for (const [kind, plural] of [
      ['template', 'templates'],
      ['pool', 'pools'],
    ] as const) {
      for (const [verb, paused] of [
        ['pause', true],
        ['resume', false],
      ] as const) {
        app.post(`/api/${plural}/:id/${verb}`, {
          schema: {
            tags: ['limits'],
            summary: paused
              ? `Start nothing new of a ${kind}; what runs goes on, what waits keeps its place`
              : `Let a ${kind} go on`,
            params: z.object({ id: name }),
            body: whyBody,
            response: { 200: gateSchema, ...refusalsWithId },
          },
          handler: async ({ params: { id }, body }) =>
            gateShown(await change(rooms, { kind, name: id, paused, why: body.why })),
        });
      }
    }
    app.get('/api/pools', {
      schema: {
        tags: ['limits'],
        summary: 'Pools: their agents, what runs, limits and pauses',
        response: { 200: z.object({ pools: z.array(poolSchema) }), ...refusals },
      },
      handler: async () => ({
        pools: (await poolViews(rooms)).map(({ gate, ...pool }) => ({ ...pool, ...limitShown(gate) })),
      }),
    });
  };

const laneRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['limits'];
    app.get('/api/lanes', {
      schema: {
        tags,
        summary: 'Lanes: how much of each may run at once, what runs, and what waits',
        response: { 200: z.object({ lanes: z.array(laneSchema) }), ...refusals },
      },
      handler: async () => ({ lanes: (await laneViews(rooms)).map(laneShown) }),
    });
    app.post('/api/lanes/:name', {
      schema: {
        tags,
        summary: 'Limit, pause or resume a lane',
        params: z.object({ name }),
        body: limitBody,
        response: { 200: laneSchema, ...refusalsWithId },
      },
      handler: async ({ params, body }) => {
        await change(rooms, { kind: 'lane', name: params.name, ...body });
        return laneShown((await laneViews(rooms)).find((lane) => lane.name === params.name)!);
      },
    });
  };

const drainRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const answer = () => {
      const { drain } = rooms.controls;
      if (drain === null) return { draining: false };
      return { draining: true, since: drain.at, by: drain.by, ...(drain.why === null ? {} : { why: drain.why }) };
    };
    app.get('/api/drain', {
      schema: {
        tags: ['limits'],
        summary: 'Whether the gateway is draining',
        response: { 200: drainSchema, ...refusals },
      },
      handler: async () => answer(),
    });
    app.post('/api/drain', {
      schema: {
        tags: ['limits'],
        summary: 'Start nothing new, whatever is asked for, until it is taken back; also across restarts',
        body: z.strictObject({ on: z.boolean(), why }),
        response: { 200: drainSchema, ...refusals },
      },
      handler: async ({ body }) => {
        await change(rooms, { kind: 'gateway', name: ANY, paused: body.on, why: body.why });
        return answer();
      },
    });
  };

interface Wanted extends Pick<GateOrder, 'kind' | 'name' | 'concurrency' | 'paused'> {
  readonly why?: string | undefined;
}

/** @throws AppError not_found for what nobody knows: a name that is mistyped must not seem to be paused */
async function change(rooms: Rooms, { why: reason, ...wanted }: Wanted): Promise<Gate> {
  const { store, controls } = rooms;
  await assertKnown(rooms, wanted.kind, wanted.name);
  return store.transact('http.control', (tx) => controls.change(tx, { ...wanted, by: ACTOR, why: reason ?? null }));
}

async function assertKnown(rooms: Rooms, kind: GateKind, text: string): Promise<void> {
  const { store, templates } = rooms;
  if (kind === 'gateway') return;
  if ((await listGates(store)).some((gate) => gate.kind === kind && gate.name === text)) return;
  const isKnown = {
    template: async () => templates.get(text) !== undefined,
    owner: async () => text === ANY || (await getSession(store, text)) !== undefined,
    pool: async () => (await knownPools(rooms)).has(text),
    lane: async () => (await knownLanes(rooms)).has(text),
  }[kind];
  if (await isKnown()) return;
  if (kind === 'owner')
    throw new AppError('not_found', `nobody has spoken in a conversation ${JSON.stringify(text)}`, { field: 'name' });
  throw notFound(kind, text);
}

function gateShown({ kind, name: gateName, ...gate }: Gate): z.infer<typeof gateSchema> {
  return { kind, name: gateName, ...limitShown(gate) };
}

function limitShown(gate: Pick<Gate, 'concurrency' | 'pause'> | undefined) {
  return { concurrency: gate?.concurrency ?? null, ...pauseShown(gate?.pause ?? null) };
}

function pauseShown(pause: Gate['pause']): { paused?: z.infer<typeof pauseSchema> } {
  if (pause === null) return {};
  return { paused: { at: pause.at, by: pause.by, ...(pause.why === null ? {} : { why: pause.why }) } };
}

function laneShown({ pause, ...lane }: Awaited<ReturnType<typeof laneViews>>[number]): z.infer<typeof laneSchema> {
  return { ...lane, ...pauseShown(pause) };
}
