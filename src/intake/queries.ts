import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';

/** A stored message that nobody has acted on. */
export interface NewInboxRow {
  id: number;
  channel: string;
  account: string;
  kind: 'text' | 'button' | 'other';
  route: string;
  sender_id: string | null;
  sender_name: string | null;
  text: string;
  addressed: number;
  sent_at: number | null;
  received_at: number;
  attempts: number;
  extra: string | null;
}

/** The oldest first. */
export const newMessages = hot<{ limit: number }, NewInboxRow>(
  'inbox.new',
  (_d, p) => sql`
  select id, channel, account, kind, route, sender_id, sender_name, text, addressed, sent_at, received_at, attempts, extra
  from inbox where status = 'new' order by id limit ${p.limit}`,
);

/** Marks a message as acted on; no row: it was already. */
export const settleMessage = hot<
  { id: number; status: string; session: string | null; reason: string | null; now: number },
  { id: number }
>(
  'inbox.settle',
  (_d, p) => sql`
  update inbox set status = ${p.status}, session_key = ${p.session}, reason = ${p.reason}, done_at = ${p.now}
  where id = ${p.id} and status = 'new' returning id`,
);

/** One more try that failed. */
export const countAttempt = hot<{ id: number }>(
  'inbox.attempt',
  (_d, p) => sql`
  update inbox set attempts = attempts + 1 where id = ${p.id} and status = 'new'`,
);

export interface SaidBefore {
  id: number;
  sender_id: string | null;
  text: string;
  route: string;
  status: string;
  extra: string | null;
  asked_at: number | null;
}

/** What was said in a conversation and acted on or refused, the newest first. */
export const saidBefore = hot<{ session: string; limit: number }, SaidBefore>(
  'inbox.before',
  (_d, p) => sql`
  select id, sender_id, text, route, status, extra, asked_at from inbox
  where session_key = ${p.session} order by id desc limit ${p.limit}`,
);

/** Nobody waits for an answer any more: the message was changed. */
export const withdrawQuestion = hot<{ id: number }>(
  'inbox.withdraw',
  (_d, p) => sql`update inbox set asked_at = null, reason = 'edited' where id = ${p.id} and asked_at is not null`,
);
