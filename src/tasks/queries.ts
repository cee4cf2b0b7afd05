import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { Reader } from '../store/tx.ts';
import type { TaskRefRow } from './task.ts';

/** Hot statements of the task engine. All are set-based; `rows` parameters are arrays of arrays in the order of the columns named. */

export interface ExistingKey {
  idempotency: string;
  payload_digest: string;
  id: number;
  status: string;
  flow_id: number | null;
}

export const tasksByIdempotency = hot<{ rows: unknown[][] }, ExistingKey>(
  'task.by_idempotency',
  (d, p) => sql`
  select t.idempotency, t.payload_digest, t.id, t.status, t.flow_id
  from ${d.rows(p.rows.param, { key: 'text' })} as r cross join task as t
  where t.idempotency = r.key`,
);

const NEW_TASK = {
  id: 'int',
  template: 'text',
  runtime: 'text',
  stream_id: 'int',
  labels: 'json',
  priority: 'int',
  run_at: 'int',
  args: 'json',
  idempotency: 'text',
  payload_digest: 'text',
  session_key: 'text',
  flow_id: 'int',
  source: 'text',
  scope_kind: 'text',
  label: 'text',
  parent_id: 'int',
  notify_policy: 'text',
  delivery_status: 'text',
  max_attempts: 'int',
  retry: 'json',
  timeout_ms: 'int',
  expires_at: 'int',
  on_lost: 'text',
} as const;
const newTaskColumns = sql.raw(Object.keys(NEW_TASK).join(', '));

export const insertTasks = hot<{ rows: unknown[][]; now: number }>(
  'task.insert',
  (d, p) => sql`
  insert into task (${newTaskColumns}, status, created_at, last_event_at)
  select ${newTaskColumns}, 'queued', ${p.now}, ${p.now} from ${d.rows(p.rows.param, NEW_TASK)} as r`,
);

/** The same for tasks of a graph, of which some wait. */
export const insertGraphTasks = hot<{ rows: unknown[][]; now: number }>(
  'task.insert_graph',
  (d, p) => sql`
  insert into task (${newTaskColumns}, status, reason, queue_ttl_ms, graph, created_at, last_event_at)
  select ${newTaskColumns}, status, reason, queue_ttl_ms, 1, ${p.now}, ${p.now}
  from ${d.rows(p.rows.param, { ...NEW_TASK, status: 'text', reason: 'text', queue_ttl_ms: 'int' })} as r`,
);

/** Answers which were new: (run_id, seq) of a task is stored once. */
export const insertEvents = hot<{ rows: unknown[][] }, { run_id: number; seq: number }>(
  'event.insert',
  (d, p) => sql`
  insert into event (task_id, run_id, seq, type, at, data)
  select task_id, run_id, seq, type, at, data
  from ${d.rows(p.rows.param, { task_id: 'int', run_id: 'int', seq: 'int', type: 'text', at: 'int', data: 'json' })} as r
  where true
  on conflict do nothing returning run_id, seq`,
);

/** Which of these reports were applied when they came (and not kept as late ones). */
export const appliedReports = hot<{ rows: unknown[][] }, { run_id: number; seq: number }>(
  'event.applied',
  (d, p) => sql`
  select event.run_id, event.seq from ${d.rows(p.rows.param, { task_id: 'int', run_id: 'int', seq: 'int' })} as r
  cross join event on event.task_id = r.task_id and event.run_id = r.run_id and event.seq = r.seq
  where substr(event.type, 1, 5) <> 'late_'`,
);

export interface DueTask {
  id: number;
  template: string;
  runtime: string;
  args: string;
  idempotency: string | null;
  generation: number;
  attempt: number;
  timeout_ms: number;
  /** Null: it has no checkpoint. */
  checkpoint_version: number | null;
}

/** The first tasks of one band, in order: a range of the claim index, so that what is delayed or held back costs nothing. */
export const dueTasks = hot<{ stream: number; priority: number; now: number; limit: number }, DueTask>(
  'task.due',
  (_d, p) => sql`
  select id, template, runtime, args, idempotency, generation, attempt, timeout_ms, checkpoint_version from task
  where status = 'queued' and stream_id = ${p.stream} and priority = ${p.priority} and run_at <= ${p.now}
  order by run_at, id limit ${p.limit}`,
);

/** Its select has just seen them queued; an update that answers rows costs half as much again as the two statements. */
export const markLeased = hot<{ rows: unknown[][]; now: number }>(
  'task.lease',
  (d, p) => sql`
  update task set status = 'leased', run_id = r.run, last_event_at = ${p.now}
  from ${d.rows(p.rows.param, { id: 'int', run: 'int' })} as r
  where task.id = r.id and ${d.guard('task.status')} = 'queued'`,
);

/** The one write of a task's state: compare-and-set on the state and the run that the decision was made from. */
export const applyTransitions = hot<{ rows: unknown[][]; now: number }, { id: number }>(
  'task.transition',
  (d, p) => sql`
  update task set status = r.status, run_id = r.run_id, run_at = coalesce(r.run_at, task.run_at), attempt = r.attempt,
    generation = r.generation, cancel_requested_at = r.cancel_requested_at, started_at = r.started_at, ended_at = r.ended_at,
    summary = r.summary, outputs = ${d.merge('task.outputs', 'r.outputs')}, error = r.error, error_class = r.error_class, reason = r.reason,
    question = r.question, cleanup_after = r.cleanup_after, delivery_status = coalesce(r.delivery_status, task.delivery_status),
    last_event_at = ${p.now}
  from ${d.rows(p.rows.param, {
    id: 'int',
    from_status: 'text',
    from_run: 'int',
    status: 'text',
    run_id: 'int',
    run_at: 'int',
    attempt: 'int',
    generation: 'int',
    cancel_requested_at: 'int',
    started_at: 'int',
    ended_at: 'int',
    summary: 'text',
    outputs: 'json',
    error: 'text',
    error_class: 'text',
    reason: 'text',
    question: 'json',
    cleanup_after: 'int',
    delivery_status: 'text',
  })} as r
  where task.id = r.id and ${d.guard('task.status')} = r.from_status and ${d.guard('task.run_id')} is not distinct from r.from_run
  returning task.id`,
);

export const markRunning = hot<{ rows: unknown[][]; now: number }, { id: number }>(
  'task.start',
  (d, p) => sql`
  update task set status = 'running', attempt = attempt + 1, started_at = coalesce(started_at, ${p.now}), last_event_at = ${p.now}
  from ${d.rows(p.rows.param, { id: 'int', run: 'int' })} as r
  where task.id = r.id and ${d.guard('task.status')} = 'leased' and ${d.guard('task.run_id')} = r.run
  returning task.id`,
);

/** Progress of a run: only the newest is kept on the task. */
export const storeProgress = hot<{ rows: unknown[][]; now: number }>(
  'task.progress',
  (d, p) => sql`
  update task set progress = coalesce(r.progress, task.progress),
    outputs = ${d.merge('task.outputs', 'r.outputs')}, last_event_at = ${p.now}
  from ${d.rows(p.rows.param, { id: 'int', run: 'int', progress: 'json', outputs: 'json' })} as r
  where task.id = r.id and ${d.guard('task.run_id')} = r.run`,
);

/** The newest progress of each of these runs that was written; runs without any are missing. */
export const newestProgress = hot<{ rows: unknown[][] }, { run_id: number; seq: number }>(
  'event.newest_progress',
  (d, p) => sql`
  select event.run_id, event.seq
  from ${d.rows(p.rows.param, { task_id: 'int', run_id: 'int' })} as r
  cross join event on event.task_id = r.task_id and event.run_id = r.run_id and event.seq = (
    select newest.seq from event as newest
    where newest.task_id = r.task_id and newest.run_id = r.run_id and newest.type = 'progress' order by newest.seq desc limit 1
  )`,
);

/** The last figure of a run that has ended in this very transaction. */
export const keepProgress = hot<{ rows: unknown[][] }>(
  'task.keep_progress',
  (d, p) => sql`
  update task set progress = r.progress from ${d.rows(p.rows.param, { id: 'int', progress: 'json' })} as r where task.id = r.id`,
);

export interface TaskHead extends TaskRefRow {
  id: number;
  status: string;
  run_id: number | null;
  attempt: number;
  max_attempts: number;
  retry: string | null;
  stream_id: number;
  priority: number;
  run_at: number;
  cancel_requested_at: number | null;
  created_at: number;
  started_at: number | null;
  reason: string | null;
  agent_id: string | null;
}

export const taskHeads = hot<{ rows: unknown[][] }, TaskHead>(
  'task.heads',
  (d, p) => sql`
  select task.id, task.status, task.run_id, task.template, task.label, task.flow_id, task.session_key, task.notify_policy,
    task.generation, task.attempt, task.max_attempts, task.retry, task.stream_id, task.priority, task.run_at, task.cancel_requested_at, task.created_at,
    task.started_at, task.graph, task.reason, run.agent_id
  from ${d.rows(p.rows.param, { id: 'int' })} as r cross join task on task.id = r.id left join run on run.id = task.run_id`,
);

/** What the engine says about the end of these tasks, in Chinese. */
export const keepErrorsZh = hot<{ rows: unknown[][] }>(
  'task.error_zh',
  (d, p) => sql`
  update task set error_zh = r.error_zh from ${d.rows(p.rows.param, { id: 'int', error_zh: 'text' })} as r where task.id = r.id`,
);

export const requestCancel = hot<{ rows: unknown[][]; now: number }>(
  'task.request_cancel',
  (d, p) => sql`
  update task set cancel_requested_at = ${p.now}, last_event_at = ${p.now} from ${d.rows(p.rows.param, { id: 'int' })} as r
  where task.id = r.id and ${d.guard('task.cancel_requested_at')} is null`,
);

/** The time to live is the first generation's: a person who asks again wants it done. A paused task waits for its person. */
export const expiredTasks = hot<{ now: number; limit: number }, { id: number }>(
  'task.expired',
  (d, p) => sql`
  select id from task where expires_at is not null and expires_at <= ${p.now} and ended_at is null and run_id is null
    and generation = 1 and ${d.guard('status')} <> 'paused' limit ${p.limit}`,
);

/**
 * What became of the final message of a generation. A task that a person has started again is pending, and in its next generation
 * anyway: a late receipt of the last one is not its delivery.
 */
export const setDelivery = hot<{ rows: unknown[][] }>(
  'task.delivery',
  (d, p) => sql`
  update task set delivery_status = r.delivery_status
  from ${d.rows(p.rows.param, { id: 'int', generation: 'int', delivery_status: 'text' })} as r
  where task.id = r.id and ${d.guard('task.generation')} = r.generation and ${d.guard('task.delivery_status')} <> 'pending'`,
);

export async function countByStatus(reader: Reader): Promise<{ status: string; count: number }[]> {
  const query = sql<{
    status: string;
    count: number;
  }>`
    select status, count(*) as count from task
    where status <> 'leased' and status <> 'running' and status <> 'succeeded' and (status = 'queued' or status = 'waiting' or status = 'paused')
    group by status
    union all
    select task.status, count(*) as count from run cross join task on task.id = run.task_id
    where run.lease_until is not null group by task.status`;
  return reader.fetch(query);
}
