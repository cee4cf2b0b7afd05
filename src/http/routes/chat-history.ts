import { z } from 'zod';
import { artifactsOfTasks } from '../../artifacts/queries.ts';
import { AppError } from '../../errors.ts';
import type { IdCodec } from '../../ids.ts';
import type { Store } from '../../store/store.ts';
import type { Conversation } from './chat-identity.ts';
import { type ChatRow, chatAfter, chatBefore, chatEdits } from './chat-queries.ts';

/** A line of a conversation as clients see it. */
export const chatMessageSchema = z.object({
  /** Also the cursor for what comes after it. */
  id: z.string(),
  from: z.enum(['user', 'bot']),
  text: z.string(),
  marks: z
    .array(
      z.object({
        kind: z.enum(['bold', 'italic', 'code', 'pre', 'link', 'quote']),
        start: z.number(),
        length: z.number(),
        language: z.string().optional(),
        url: z.string().optional(),
      }),
    )
    .optional()
    .describe('how stretches of the text look; places in UTF-16 units'),
  /** Epoch milliseconds. */
  at: z.number(),
  taskId: z.string().optional(),
  files: z
    .array(z.object({ name: z.string(), bytes: z.number(), url: z.string() }))
    .optional()
    .describe('what the task brought home'),
});
export type ChatMessage = z.infer<typeof chatMessageSchema>;

/** The cursor before the first message. */
export const BEGINNING = '0';

/**
 * Up to `limit` messages, oldest first: those after a cursor; else the last ones before a cursor; else the last ones.
 * One id sequence for all tables makes the merge of both directions exact.
 * @throws AppError invalid_request for a cursor that is none
 */
export async function chatMessages(
  store: Store,
  conversation: Conversation,
  page: { after?: string | undefined; before?: string | undefined; limit: number },
): Promise<ChatMessage[]> {
  const place = { key: conversation.sessionKey, user: conversation.user, limit: page.limit };
  const rows =
    page.after === undefined
      ? (await store.all(chatBefore, { ...place, bound: bound(store.ids, page.before, 'before') })).reverse()
      : await store.all(chatAfter, { ...place, bound: bound(store.ids, page.after, 'after') });
  return withFiles(store, rows);
}

/** Messages that were changed since (not before) a moment, in that order, each with the moment. */
export async function chatChanges(
  store: Store,
  { sessionKey }: Conversation,
  since: number,
  limit: number,
): Promise<{ message: ChatMessage; editedAt: number }[]> {
  const rows = await store.all(chatEdits, { key: sessionKey, since, limit });
  return rows.map((row) => ({ message: messageOf(row, store.ids), editedAt: row.edited_at }));
}

/** The cursor of the last message so far. */
export async function lastCursor(store: Store, conversation: Conversation): Promise<string> {
  return (await chatMessages(store, conversation, { limit: 1 })).at(-1)?.id ?? BEGINNING;
}

/** The files of a task go with the last word about it: one more statement, and only where there is such a message. */
async function withFiles(store: Store, rows: readonly ChatRow[]): Promise<ChatMessage[]> {
  const taskIds = rows.flatMap((row) => (row.is_final === 1 && row.task_id !== null ? [[row.task_id]] : []));
  const found = taskIds.length === 0 ? [] : await store.all(artifactsOfTasks, { rows: taskIds });
  return rows.map((row) => {
    const own =
      row.is_final === 1 ? found.filter((file) => file.task_id === row.task_id).sort((a, b) => a.id - b.id) : [];
    const files = own.map(({ id, name, bytes }) => ({ name, bytes, url: `/api/artifacts/${store.ids.encode(id)}` }));
    return { ...messageOf(row, store.ids), ...(files.length > 0 && { files }) };
  });
}

function bound(ids: IdCodec, cursor: string | undefined, field: string): number {
  if (cursor === undefined) return Number.MAX_SAFE_INTEGER;
  const id = cursor === BEGINNING ? 0 : ids.decode(cursor);
  if (id === undefined) throw new AppError('invalid_request', `${field}: is not the id of a message`, { field });
  return id;
}

function messageOf(row: ChatRow, ids: IdCodec): ChatMessage {
  const { sender: from, text, at } = row;
  return {
    id: ids.encode(row.id),
    from,
    text,
    ...(row.marks === null ? {} : { marks: JSON.parse(row.marks) as NonNullable<ChatMessage['marks']> }),
    at,
    ...(row.task_id === null ? {} : { taskId: ids.encode(row.task_id) }),
  };
}
