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
  received_at: number;
  attempts: number;
}

/** The oldest first. */
export const newMessages = hot<{ limit: number }, NewInboxRow>(
  'inbox.new',
  (_d, p) => sql`
  select id, channel, account, kind, route, sender_id, sender_name, text, addressed, received_at, attempts
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
