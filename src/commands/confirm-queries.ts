import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';

/** A message that its person was asked about. */
export interface AskedRow {
  id: number;
  route: string;
  text: string;
}

/** Asked of this person in this conversation and not answered yet, the oldest first. */
export const openQuestions = hot<{ session: string; sender: string; since: number; limit: number }, AskedRow>(
  'confirm.open',
  (_d, p) => sql`
  select id, route, text from inbox
  where session_key = ${p.session} and asked_at is not null and asked_at > ${p.since} and sender_id = ${p.sender}
  order by id limit ${p.limit}`,
);

/** The message is asked about from now on. */
export const askAbout = hot<{ id: number; now: number }>(
  'confirm.ask',
  (_d, p) => sql`update inbox set asked_at = ${p.now} where id = ${p.id}`,
);

/** Ends the question; no row: it was answered, or withdrawn, before. */
export const takeQuestion = hot<{ id: number; reason: string }, { id: number }>(
  'confirm.take',
  (_d, p) => sql`
  update inbox set asked_at = null, reason = ${p.reason} where id = ${p.id} and asked_at is not null returning id`,
);
