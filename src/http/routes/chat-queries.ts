import { sql } from 'kysely';
import { hot } from '../../store/dialect.ts';

/** A line of a web chat: a stored message of the person, or a sent one of the bot. */
export interface ChatRow {
  id: number;
  sender: 'user' | 'bot';
  text: string;
  /** JSON; null: plain. */
  marks: string | null;
  at: number;
  task_id: number | null;
  /** 1: the last word about its task, which the files of the task go with. */
  is_final: number;
}

type ChatPlace = { key: string; user: string; bound: number; limit: number };

/** The next lines after an id, oldest first. */
export const chatAfter = hot<ChatPlace, ChatRow>(
  'chat.after',
  (_d, p) => sql`${lines(p, '>')} order by id limit ${p.limit}`,
);

/** The last lines before an id, newest first. */
export const chatBefore = hot<ChatPlace, ChatRow>(
  'chat.before',
  (_d, p) => sql`${lines(p, '<')} order by id desc limit ${p.limit}`,
);

/** Messages that were changed since (not before) a moment, in that order. */
export const chatEdits = hot<{ key: string; since: number; limit: number }, ChatRow & { edited_at: number }>(
  'chat.edits',
  (_d, p) => sql`
  select id, 'bot' as sender, text, marks, sent_at as at, task_id, kind = 'final' as is_final, edited_at from outbox
  where session_key = ${p.key} and edited_at is not null and edited_at >= ${p.since} order by edited_at limit ${p.limit}`,
);

/** The row of a message of the web chat. */
export const webchatMessage = hot<{ identity: string }, { id: number }>(
  'chat.message',
  (_d, p) => sql`select id from inbox where channel = 'webchat' and account = 'default' and identity = ${p.identity}`,
);

/** A message has no session before it was acted on; until then it is found by its sender. */
function lines(p: Parameters<Parameters<typeof hot<ChatPlace>>[1]>[1], side: '<' | '>') {
  const beyond = sql`id ${sql.raw(side)} ${p.bound}`;
  return sql`
    select id, 'user' as sender, text, null as marks, received_at as at, null as task_id, 0 as is_final from inbox
    where session_key = ${p.key} and ${beyond}
    union all
    select id, 'user', text, null, received_at, null, 0 from inbox
    where status = 'new' and session_key is null and channel = 'webchat' and account = 'default' and sender_id = ${p.user} and ${beyond}
    union all
    select id, 'bot', text, marks, sent_at, task_id, kind = 'final' from outbox
    where session_key = ${p.key} and status = 'sent' and ${beyond}`;
}
