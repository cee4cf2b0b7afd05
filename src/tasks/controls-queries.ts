import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { GateTable } from '../store/line-tables.ts';

/** Statements of what people do to the line: limits, pauses, priorities. Only their orders run them. */

export const gateByName = hot<{ kind: string; name: string }, GateTable>(
  'gate.one',
  (_d, p) => sql`
  select kind, name, concurrency, paused_at, paused_by, reason from gate where kind = ${p.kind} and name = ${p.name}`,
);

/** All limits and pauses, by kind and name. */
export const gatesInOrder = hot<Record<string, never>, GateTable>(
  'gate.list',
  () => sql`select kind, name, concurrency, paused_at, paused_by, reason from gate order by kind, name`,
);

export const saveGate = hot<GateTable & Record<string, unknown>>(
  'gate.save',
  (_d, p) => sql`
  insert into gate (kind, name, concurrency, paused_at, paused_by, reason)
  values (${p.kind}, ${p.name}, ${p.concurrency}, ${p.paused_at}, ${p.paused_by}, ${p.reason})
  on conflict (kind, name) do update set concurrency = excluded.concurrency, paused_at = excluded.paused_at,
    paused_by = excluded.paused_by, reason = excluded.reason`,
);

export const dropGate = hot<{ kind: string; name: string }>(
  'gate.drop',
  (_d, p) => sql`delete from gate where kind = ${p.kind} and name = ${p.name}`,
);

/** Everything else about the task stays: why it was queued, what its last run said, its place in the line. */
export const pauseQueued = hot<{ rows: unknown[][]; now: number }, { id: number }>(
  'task.pause',
  (d, p) => sql`
  update task set status = 'paused', last_event_at = ${p.now} from ${d.rows(p.rows.param, { id: 'int' })} as r
  where task.id = r.id and ${d.guard('task.status')} = 'queued' returning task.id`,
);

/** Its time to live does not run while it is paused. */
export const resumePaused = hot<{ rows: unknown[][]; now: number }, { id: number }>(
  'task.resume',
  (d, p) => sql`
  update task set status = 'queued', expires_at = task.expires_at + r.pause_ms, last_event_at = ${p.now}
  from ${d.rows(p.rows.param, { id: 'int', pause_ms: 'int' })} as r
  where task.id = r.id and ${d.guard('task.status')} = 'paused' returning task.id`,
);

/** When each of these tasks was paused last. */
export const pausedSince = hot<{ rows: unknown[][] }, { task_id: number; at: number }>(
  'task.paused_at',
  (d, p) => sql`
  select event.task_id, max(event.at) as at
  from ${d.rows(p.rows.param, { id: 'int' })} as r cross join event on event.task_id = r.id and event.run_id = 0
  where event.type = 'paused' group by event.task_id`,
);

export const setPriority = hot<{ rows: unknown[][]; now: number }, { id: number }>(
  'task.priority',
  (d, p) => sql`
  update task set priority = r.priority, last_event_at = ${p.now}
  from ${d.rows(p.rows.param, { id: 'int', from_status: 'text', priority: 'int' })} as r
  where task.id = r.id and ${d.guard('task.status')} = r.from_status returning task.id`,
);

/** What is not told yet is told, or not, by the new policy; what was told stays so. */
export const setNotifyPolicy = hot<{ rows: unknown[][] }, { id: number }>(
  'task.notify',
  (d, p) => sql`
  update task set notify_policy = r.policy,
    delivery_status = case
      when session_key is null then delivery_status
      when r.policy = 'silent' and delivery_status = 'pending' then 'not_applicable'
      when r.policy <> 'silent' and delivery_status = 'not_applicable' and ended_at is null then 'pending'
      else delivery_status end
  from ${d.rows(p.rows.param, { id: 'int', policy: 'text' })} as r
  where task.id = r.id returning task.id`,
);

/** Live runs by lane and queue, for what people look at. */
export const runningStreams = hot<Record<string, never>, { lane: string; queue: string; running: number }>(
  'lane.running',
  () => sql`
  select stream.lane, stream.queue, count(*) as running
  from run cross join task on task.id = run.task_id cross join stream on stream.id = task.stream_id
  where run.lease_until is not null group by stream.lane, stream.queue`,
);

/** Of each band: when its first task was due, and how many are due, at most `limit`. */
export const dueInBands = hot<
  { rows: unknown[][]; now: number; limit: number },
  { place: number; head_at: number | null; due: number }
>(
  'lane.due',
  (d, p) => sql`
  select r.place,
    (select min(t.run_at) from task as t where t.status = 'queued' and t.stream_id = r.stream and t.priority = r.priority) as head_at,
    (select count(*) from (
      select 1 from task as t where t.status = 'queued' and t.stream_id = r.stream and t.priority = r.priority
        and t.run_at <= ${p.now} limit ${p.limit}
    ) as some) as due
  from ${d.rows(p.rows.param, { place: 'int', stream: 'int', priority: 'int' })} as r`,
);
