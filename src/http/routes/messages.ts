import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { AppError } from '../../errors.ts';
import { flowTasks } from '../../flows/queries.ts';
import { listParked, retryParked } from '../../intake/parked.ts';
import type { MessageKind } from '../../outbox/message.ts';
import type { InboxTable } from '../../store/tables.ts';
import { isFinal, TASK_STATES, type TaskState } from '../../tasks/states.ts';
import type { Rooms } from '../rooms.ts';
import { errandOfMessage, inboxById, type SaidRow, saidAbout } from './queries.ts';
import {
  ACTOR,
  epochMs,
  filterId,
  idOf,
  idParams,
  nextCursor,
  notFound,
  pageOf,
  pageQuery,
  publicId,
  refusals,
  refusalsOfChange,
  refusalsWithId,
} from './shapes.ts';

const fateSchema = z.object({
  inboxId: publicId,
  status: z.enum(['new', 'done', 'refused', 'ignored', 'failed']),
  reason: z.string().optional().describe('why it was not acted on, or why its errand was not started'),
  sessionKey: z.string().optional(),
  /** Nothing more will follow by itself. */
  settled: z.boolean(),
  errand: z.enum(['queued', 'started', 'failed']).optional().describe('absent: the message asked for no errand'),
  flowId: publicId.optional(),
  tasks: z.array(z.object({ taskId: publicId, status: z.enum(TASK_STATES) })),
  said: z.array(
    z.object({
      id: publicId,
      kind: z.enum(['final', 'update', 'reply', 'notice']),
      text: z.string(),
      at: epochMs,
      taskId: publicId.optional(),
    }),
  ),
});
type Fate = z.infer<typeof fateSchema>;

const parkedSchema = z.object({
  inboxId: publicId,
  channel: z.string(),
  account: z.string(),
  chat: z.string().optional().describe('absent: its place could not be read'),
  userId: z.string().optional(),
  text: z.string(),
  error: z.string(),
  attempts: z.number().int(),
  receivedAt: epochMs,
  parkedAt: epochMs,
});

/** What became of one incoming message: how `errand send --wait` finds its own answer, whatever else is said in the conversation. */
export const messageRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    app.get('/api/inbox/:id', {
      schema: {
        tags: ['messages'],
        summary: 'What became of an incoming message: its errand, its tasks and what was said about them',
        params: idParams,
        response: { 200: fateSchema, ...refusalsWithId },
      },
      handler: async ({ params }) => fateOf(rooms, params.id),
    });
    await app.register(parkedRoutes(rooms));
  };

/** Messages that could not be worked off. */
const parkedRoutes =
  ({ store }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['messages'];
    app.get('/api/inbox', {
      schema: {
        tags,
        summary: 'Incoming messages that were put aside because working them off failed, the newest first',
        querystring: z.strictObject(pageQuery),
        response: { 200: z.object({ messages: z.array(parkedSchema), next: nextCursor }), ...refusals },
      },
      handler: async ({ query: { cursor, limit } }) => {
        const rows = await listParked(store, { before: filterId(store.ids, cursor, 'cursor'), limit: limit + 1 });
        const { items, next } = pageOf(
          rows.map((row) => parkedOf(row, store.ids)),
          limit,
          ({ inboxId }) => inboxId,
        );
        return { messages: items, next };
      },
    });
    app.post('/api/inbox/:id/retry', {
      schema: {
        tags,
        summary: 'Try a message that was put aside again, from the beginning',
        params: idParams,
        response: { 202: z.object({ inboxId: publicId, status: z.literal('new') }), ...refusalsOfChange },
      },
      handler: async ({ params }, reply) => {
        const id = idOf(store.ids, params.id, 'message');
        if (await store.transact('http.inbox_retry', (tx) => retryParked(tx, id, `inbox/${params.id}`, ACTOR)))
          return reply.code(202).send({ inboxId: params.id, status: 'new' });
        const [row] = await store.all(inboxById, { id });
        if (!row) throw notFound('message', params.id);
        throw new AppError(
          'conflict',
          `message ${params.id} is ${row.status}; only failed messages can be tried again`,
        );
      },
    });
  };

function parkedOf(row: InboxTable, ids: Rooms['store']['ids']): z.infer<typeof parkedSchema> {
  return {
    inboxId: ids.encode(row.id),
    channel: row.channel,
    account: row.account,
    chat: chatOf(row.route),
    userId: row.sender_id ?? undefined,
    text: row.text,
    error: row.reason ?? '',
    attempts: row.attempts,
    receivedAt: row.received_at,
    parkedAt: row.done_at ?? row.received_at,
  };
}

/** A message may have been put aside because of its very route. */
function chatOf(route: string): string | undefined {
  try {
    return (JSON.parse(route) as { chat?: string }).chat;
  } catch {
    return undefined;
  }
}

async function fateOf({ store }: Rooms, text: string): Promise<Fate> {
  const id = idOf(store.ids, text, 'message');
  const [row] = await store.all(inboxById, { id });
  if (!row) throw notFound('message', text);
  const [errand] = await store.all(errandOfMessage, { id });
  const flow = errand?.flow_id ?? null;
  const tasks = flow === null ? [] : await store.all(flowTasks, { id: flow });
  // Read last: what is said about a final state is there in the transaction that made it final.
  const said = await store.all(saidAbout, { reply: `inbox:${id}:reply`, errand: `inbox:${id}:errand`, flow });
  const isOver =
    errand === undefined ||
    errand.status === 'failed' ||
    (errand.status === 'started' && tasks.every((task) => isFinal(task.status as TaskState)));
  return {
    inboxId: text,
    status: row.status as Fate['status'],
    reason: errand?.reason ?? row.reason ?? undefined,
    sessionKey: row.session_key ?? undefined,
    settled: row.status !== 'new' && isOver,
    errand: errand?.status as Fate['errand'],
    flowId: flow === null ? undefined : store.ids.encode(flow),
    tasks: tasks.map((task) => ({ taskId: store.ids.encode(task.id), status: task.status as TaskState })),
    said: said.map((message) => saidOf(message, store.ids)),
  };
}

function saidOf(row: SaidRow, ids: Rooms['store']['ids']): Fate['said'][number] {
  return {
    id: ids.encode(row.id),
    kind: row.kind as MessageKind,
    text: row.text,
    at: row.created_at,
    taskId: row.task_id === null ? undefined : ids.encode(row.task_id),
  };
}
