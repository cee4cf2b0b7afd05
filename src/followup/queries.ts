import { sql } from 'kysely';
import type { Lang } from '../sessions/lang.ts';
import { hot } from '../store/dialect.ts';
import type { NotifyPolicy } from '../tasks/states.ts';

/** One row per message that asks for an errand, whatever is tried how often. */
export const insertFollowups = hot<{ rows: unknown[][]; now: number }>(
  'followup.insert',
  (d, p) => sql`
  insert into followup (id, inbox_id, session_key, route, user_id, template, args, status, created_at)
  select id, inbox_id, session_key, route, user_id, template, args, 'queued', ${p.now}
  from ${d.rows(p.rows.param, {
    id: 'int',
    inbox_id: 'int',
    session_key: 'text',
    route: 'text',
    user_id: 'text',
    template: 'text',
    args: 'text',
  })} as r
  where true on conflict (inbox_id) do nothing`,
);

export interface QueuedFollowup {
  id: number;
  inbox_id: number;
  session_key: string;
  route: string;
  user_id: string;
  template: string;
  args: string;
  created_at: number;
  /** The message, and what its conversation has chosen. */
  text: string;
  lang: Lang | null;
  notify_policy: NotifyPolicy | null;
}

/** The oldest first. */
export const queuedFollowups = hot<{ limit: number }, QueuedFollowup>(
  'followup.queued',
  (_d, p) => sql`
  select followup.id, followup.inbox_id, followup.session_key, followup.route, followup.user_id, followup.template, followup.args,
    followup.created_at, inbox.text, session.lang, session.notify_policy
  from followup cross join inbox on inbox.id = followup.inbox_id
  left join session on session.session_key = followup.session_key
  where followup.status = 'queued' order by followup.id limit ${p.limit}`,
);

/** Ends the waiting of one; no row: somebody else did. */
export const settleFollowup = hot<
  { id: number; status: string; reason: string | null; flow: number | null; now: number },
  { id: number }
>(
  'followup.settle',
  (_d, p) => sql`
  update followup set status = ${p.status}, reason = ${p.reason}, flow_id = ${p.flow}, done_at = ${p.now}
  where id = ${p.id} and status = 'queued' returning id`,
);
