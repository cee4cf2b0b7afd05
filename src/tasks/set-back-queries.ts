import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';

/** Statements of what follows when the clock was set back; set-based, as in queries.ts. Nothing of ordinary life runs them. */

/** A place in the claim index. */
export interface LinePlace extends Record<string, unknown> {
  stream: number;
  priority: number;
  run_at: number;
  id: number;
}

/** The next queued tasks after a place, along the claim index alone. */
export const queuedAfter = hot<LinePlace & { limit: number }, LinePlace>(
  'set_back.walk',
  (_d, p) => sql`
  select stream_id as stream, priority, run_at, id from task
  where status = 'queued' and (stream_id, priority, run_at, id) > (${p.stream}, ${p.priority}, ${p.run_at}, ${p.id})
  order by stream_id, priority, run_at, id limit ${p.limit}`,
);

/** Paused tasks that are to start later than now once they are resumed. */
export const pausedAhead = hot<{ now: number; after: number; limit: number }, { id: number }>(
  'set_back.paused',
  (_d, p) => sql`
  select id from task
  where status <> 'leased' and status <> 'running' and status <> 'succeeded' and status = 'paused' and id > ${p.after}
    and run_at > ${p.now} and last_event_at > ${p.now}
  order by id limit ${p.limit}`,
);

/**
 * Rows that were last written by a clock that has been set back since: what they wait from now on is what they were to wait then, and
 * a time that somebody has asked for by name stays (they have never run, and it lies behind all that happened to them). Their time to
 * live is as long as it was.
 */
export const pullForward = hot<{ rows: unknown[][]; now: number }, { id: number }>(
  'set_back.pull',
  (d, p) => sql`
  update task set
    run_at = case when task.run_at > task.last_event_at then ${p.now} + task.run_at - task.last_event_at else ${p.now} end,
    expires_at = case when task.created_at > ${p.now} then task.expires_at - (task.created_at - ${p.now}) else task.expires_at end,
    last_event_at = ${p.now}
  from ${d.rows(p.rows.param, { id: 'int' })} as r
  where task.id = r.id and (${d.guard('task.status')} = 'queued' or ${d.guard('task.status')} = 'paused')
    and ${d.guard('task.run_at')} > ${p.now} and task.last_event_at > ${p.now}
    and (task.run_at <= task.last_event_at or task.generation > 1 or exists (select 1 from run where run.task_id = task.id))
  returning task.id`,
);

/** A cancel that was asked for later than now was asked for now: its grace is no longer than that of others. */
export const cancelsFromAhead = hot<{ now: number }>(
  'set_back.cancels',
  (_d, p) => sql`
  update task set cancel_requested_at = ${p.now}
  where run_id is not null and cancel_requested_at is not null and cancel_requested_at > ${p.now}`,
);

/** Runs that were claimed later than now have their whole time limit from now on. */
export const deadlinesFromAhead = hot<{ now: number }>(
  'set_back.deadlines',
  (_d, p) => sql`
  update run set deadline_at = deadline_at - (claimed_at - ${p.now})
  where lease_until is not null and claimed_at > ${p.now} and deadline_at - (claimed_at - ${p.now}) > ${p.now}`,
);
