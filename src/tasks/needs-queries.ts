import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { TaskRefRow } from './task.ts';

/** Statements of needs. Only tasks of a graph (`task.graph`) run them. */

export const insertNeeds = hot<{ rows: unknown[][] }>(
  'need.insert',
  (d, p) => sql`
  insert into need (task_id, on_task_id, condition, met)
  select task_id, on_task_id, condition, met
  from ${d.rows(p.rows.param, { task_id: 'int', on_task_id: 'int', condition: 'text', met: 'int' })} as r`,
);

/** Tasks that were made without needs may be needed from now on. */
export const markNeeded = hot<{ rows: unknown[][] }>(
  'need.mark',
  (d, p) => sql`
  update task set graph = 1 from ${d.rows(p.rows.param, { id: 'int' })} as r where task.id = r.id and ${d.guard('task.graph')} = 0`,
);

export interface NeededTask {
  id: number;
  status: string;
  flow_id: number | null;
}

export const neededTasks = hot<{ rows: unknown[][] }, NeededTask>(
  'need.tasks',
  (d, p) => sql`
  select task.id, task.status, task.flow_id from ${d.rows(p.rows.param, { id: 'int' })} as r cross join task on task.id = r.id`,
);

/** Marks what the ends of these tasks have met; answers the tasks that needed it. */
export const meetNeeds = hot<{ rows: unknown[][] }, { task_id: number }>(
  'need.meet',
  (d, p) => sql`
  update need set met = 1
  from ${d.rows(p.rows.param, { id: 'int' })} as r cross join task as ended on ended.id = r.id
  where need.on_task_id = r.id and ${d.guard('need.met')} = 0
    and (ended.status = 'succeeded' or (${d.guard('need.condition')} = 'always' and ended.ended_at is not null))
  returning need.task_id`,
);

export interface ReadyTask extends TaskRefRow {
  task_id: number;
  stream_id: number;
  priority: number;
  run_at: number;
  queue_ttl_ms: number | null;
  created_at: number;
}

/** Those of these tasks that wait for needs of which none is left. */
export const readyTasks = hot<{ rows: unknown[][] }, ReadyTask>(
  'need.ready',
  (d, p) => sql`
  select task.id as task_id, task.template, task.label, task.flow_id, task.session_key, task.notify_policy, task.generation, task.graph,
    task.stream_id, task.priority, task.run_at, task.queue_ttl_ms, task.created_at
  from ${d.rows(p.rows.param, { id: 'int' })} as r cross join task on task.id = r.id
  where ${d.guard('task.status')} = 'waiting' and task.reason = 'needs'
    and not exists (select 1 from need where need.task_id = task.id and need.met = 0)`,
);

export const releaseTasks = hot<{ rows: unknown[][]; now: number }>(
  'need.release',
  (d, p) => sql`
  update task set status = 'queued', reason = null, run_at = r.run_at, expires_at = r.expires_at, last_event_at = ${p.now}
  from ${d.rows(p.rows.param, { id: 'int', run_at: 'int', expires_at: 'int' })} as r
  where task.id = r.id and ${d.guard('task.status')} = 'waiting'`,
);

/** Who waits, itself or by way of others, for the success of one of these tasks that has ended without it; and for which. */
export const doomedTasks = hot<{ rows: unknown[][] }, { id: number; root: number }>(
  'need.doomed',
  (d, p) => sql`
  with recursive doomed (id, root) as (
    select task.id, r.id
    from ${d.rows(p.rows.param, { id: 'int' })} as r
    cross join task as ended on ended.id = r.id and ended.ended_at is not null and ${d.guard('ended.status')} <> 'succeeded'
    cross join need on need.on_task_id = r.id and ${d.guard('need.met')} = 0 and need.condition = 'success'
    cross join task on task.id = need.task_id and ${d.guard('task.status')} = 'waiting' and task.reason = 'needs'
    union
    select task.id, doomed.root
    from doomed cross join need on need.on_task_id = doomed.id and ${d.guard('need.met')} = 0 and need.condition = 'success'
    cross join task on task.id = need.task_id and ${d.guard('task.status')} = 'waiting' and task.reason = 'needs'
  )
  select id, min(root) as root from doomed group by id`,
);

/** Who was skipped, itself or by way of others, because of one of these tasks. */
export const skippedTasks = hot<{ rows: unknown[][] }, { id: number }>(
  'need.skipped',
  (d, p) => sql`
  with recursive skipped (id) as (
    select task.id
    from ${d.rows(p.rows.param, { id: 'int' })} as r
    cross join need on need.on_task_id = r.id and ${d.guard('need.met')} = 0 and need.condition = 'success'
    cross join task on task.id = need.task_id and ${d.guard('task.status')} = 'cancelled' and task.reason = 'dependency_failed'
    union
    select task.id
    from skipped cross join need on need.on_task_id = skipped.id and ${d.guard('need.met')} = 0 and need.condition = 'success'
    cross join task on task.id = need.task_id and ${d.guard('task.status')} = 'cancelled' and task.reason = 'dependency_failed'
  )
  select id from skipped`,
);

export interface NeedRow {
  task_id: number;
  on_task_id: number;
  condition: string;
  met: number;
  /** Of the needed task; null where that is gone. */
  status: string | null;
}

/** The needs of these tasks. */
export const needsOf = hot<{ rows: unknown[][] }, NeedRow>(
  'need.of',
  (d, p) => sql`
  select need.task_id, need.on_task_id, need.condition, need.met, task.status
  from ${d.rows(p.rows.param, { id: 'int' })} as r cross join need on need.task_id = r.id
  left join task on task.id = need.on_task_id`,
);

/** Who needs this task. */
export const neededBy = hot<{ id: number }, { task_id: number; status: string }>(
  'need.by',
  (_d, p) => sql`
  select need.task_id, task.status from need cross join task on task.id = need.task_id
  where need.on_task_id = ${p.id} order by need.task_id`,
);
