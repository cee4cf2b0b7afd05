import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { AppError } from '../../errors.ts';
import type { IdCodec } from '../../ids.ts';
import type { MessageKind, MessageStatus } from '../../outbox/message.ts';
import { type ListedRow, listMessages } from '../../outbox/queries.ts';
import type { Rooms } from '../rooms.ts';
import { outboxById } from './queries.ts';
import {
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
} from './shapes.ts';

/** In the order of a message's life. */
export const MESSAGE_STATES = [
  'pending',
  'sending',
  'sent',
  'unknown',
  'dead',
  'superseded',
  'expired',
] as const satisfies readonly MessageStatus[];
const MESSAGE_KINDS = ['final', 'update', 'reply', 'notice'] as const satisfies readonly MessageKind[];

const messageSchema = z.object({
  id: publicId,
  channel: z.string(),
  account: z.string(),
  chat: z.string(),
  sessionKey: z.string().optional(),
  kind: z.enum(MESSAGE_KINDS),
  text: z.string(),
  state: z.enum(MESSAGE_STATES),
  taskId: publicId.optional(),
  flowId: publicId.optional(),
  maybeRepeat: z.boolean(),
  attempts: z.number().int(),
  nextAt: epochMs,
  error: z.string().optional(),
  createdAt: epochMs,
  sentAt: epochMs.optional(),
});
type Message = z.infer<typeof messageSchema>;

const listQuery = z.strictObject({
  state: z.enum(MESSAGE_STATES).optional(),
  session: z.string().max(512).optional(),
  ...pageQuery,
});

/** Outgoing messages: what became of them, and sending one again. */
export const outboxRoutes =
  ({ store, outbox }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['outbox'];
    app.get('/api/outbox', {
      schema: {
        tags,
        summary: 'List outgoing messages, the newest first',
        querystring: listQuery,
        response: { 200: z.object({ messages: z.array(messageSchema), next: nextCursor }), ...refusals },
      },
      handler: async ({ query: { state, session, cursor, limit } }) => {
        const filter = {
          status: state,
          sessionKey: session,
          before: filterId(store.ids, cursor, 'cursor'),
          limit: limit + 1,
        };
        const messages = (await listMessages(store, filter)).map((row) => messageOf(row, store.ids));
        const { items, next } = pageOf(messages, limit, (message) => message.id);
        return { messages: items, next };
      },
    });
    app.post('/api/outbox/:id/resend', {
      schema: {
        tags,
        summary: 'Send a message again that is unknown, dead or expired',
        params: idParams,
        response: { 202: z.object({ id: publicId, state: z.enum(MESSAGE_STATES) }), ...refusalsOfChange },
      },
      handler: async ({ params }, reply) => {
        const id = idOf(store.ids, params.id, 'message');
        const [revived] = await store.transact('http.resend', (tx) => outbox.resend(tx, [id]));
        if (revived) return reply.code(202).send({ id: params.id, state: 'pending' });
        const [row] = await store.all(outboxById, { id });
        if (!row) throw notFound('message', params.id);
        throw new AppError(
          'conflict',
          `message ${params.id} is ${row.status}; only unknown, dead and expired messages can be sent again`,
        );
      },
    });
  };

function messageOf(row: ListedRow, ids: IdCodec): Message {
  return {
    id: ids.encode(row.id),
    channel: row.channel,
    account: row.account,
    chat: row.chat,
    sessionKey: row.session_key ?? undefined,
    kind: row.kind as MessageKind,
    text: row.text,
    state: row.status as MessageStatus,
    taskId: row.task_id === null ? undefined : ids.encode(row.task_id),
    flowId: row.flow_id === null ? undefined : ids.encode(row.flow_id),
    maybeRepeat: row.maybe_repeat === 1,
    attempts: row.attempts,
    nextAt: row.next_at,
    error: row.error ?? undefined,
    createdAt: row.created_at,
    sentAt: row.sent_at ?? undefined,
  };
}
