import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';

/** Statements of flows whose tasks need one another. Other flows never run them. */

/** @param deadline epoch milliseconds; null: none */
export const markGraph = hot<{ id: number; deadline: number | null }>(
  'graph.mark',
  (_d, p) => sql`update flow set graph = 1, deadline_at = ${p.deadline} where id = ${p.id}`,
);

/** Ends flows of which no task is left, by the worst that became of one of them. */
export const endGraphs = hot<{ rows: unknown[][]; now: number }>(
  'graph.end',
  (d, p) => sql`
  update flow set status = case
      when exists (select 1 from task
        where task.flow_id = flow.id and (task.status = 'failed' or task.status = 'timed_out' or task.status = 'lost')) then 'failed'
      when exists (select 1 from task where task.flow_id = flow.id and task.status = 'cancelled') then 'cancelled'
      else 'finished' end,
    revision = revision + 1, updated_at = ${p.now}, ended_at = ${p.now}, blocked_summary = null, blocked_task_id = null
  where flow.id in (select id from ${d.rows(p.rows.param, { id: 'int' })} as r) and ${d.guard('flow.ended_at')} is null and (
    select task.id from task where task.flow_id = flow.id and task.ended_at is null order by task.id desc limit 1) is null`,
);

/** Live flows that nobody has stopped yet and whose time is over. */
export const overdueFlows = hot<{ now: number; limit: number }, { id: number }>(
  'graph.overdue',
  (_d, p) => sql`
  select id from flow where deadline_at is not null and ended_at is null and cancel_requested_at is null and deadline_at <= ${p.now}
  order by deadline_at limit ${p.limit}`,
);

/** From now on the flow gets no more tasks; answers those for which that is new. */
export const requestFlowCancel = hot<{ rows: unknown[][]; now: number }, { id: number }>(
  'graph.request_cancel',
  (d, p) => sql`
  update flow set cancel_requested_at = ${p.now}, revision = revision + 1, updated_at = ${p.now}
  where id in (select r.id from ${d.rows(p.rows.param, { id: 'int' })} as r)
    and ${d.guard('ended_at')} is null and ${d.guard('cancel_requested_at')} is null returning id`,
);

/** What is left of these flows. */
export const liveTasksOf = hot<{ rows: unknown[][] }, { id: number; flow_id: number }>(
  'graph.live_tasks',
  (d, p) => sql`
  select task.id, task.flow_id from ${d.rows(p.rows.param, { id: 'int' })} as r cross join task on task.flow_id = r.id
  where task.ended_at is null`,
);

/** What of these flows ended without success by itself or by a person; without what was skipped because of it. */
export const unsuccessfulTasksOf = hot<{ rows: unknown[][] }, { id: number; status: string }>(
  'graph.unsuccessful_tasks',
  (d, p) => sql`
  select task.id, task.status from ${d.rows(p.rows.param, { id: 'int' })} as r cross join task on task.flow_id = r.id
  where task.ended_at is not null and ${d.guard('task.status')} <> 'succeeded' and task.reason is not 'dependency_failed' order by task.id`,
);
