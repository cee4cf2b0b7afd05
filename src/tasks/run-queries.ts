import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { DueTask } from './queries.ts';
import type { TaskRefRow } from './task.ts';

/** Hot statements about runs; all set-based, as in queries.ts. */

export const insertRuns = hot<{ rows: unknown[][]; now: number }>(
  'run.insert',
  (d, p) => sql`
  insert into run (id, task_id, generation, attempt, agent_id, instance_id, lease_token, lease_until, deadline_at, claimed_at)
  select id, task_id, generation, attempt, agent_id, instance_id, lease_token, lease_until, deadline_at, ${p.now}
  from ${d.rows(p.rows.param, {
    id: 'int',
    task_id: 'int',
    generation: 'int',
    attempt: 'int',
    agent_id: 'text',
    instance_id: 'text',
    lease_token: 'text',
    lease_until: 'int',
    deadline_at: 'int',
  })} as r`,
);

export interface HeldRun extends TaskRefRow {
  run_id: number;
  task_id: number;
  agent_id: string;
  instance_id: string;
  lease_token: string;
  run_started_at: number | null;
  run_ended_at: number | null;
  run_outcome: string | null;
  current_run: number | null;
  status: string;
  attempt: number;
  max_attempts: number;
  retry: string | null;
  cancel_requested_at: number | null;
  created_at: number;
  started_at: number | null;
  stream_id: number;
  priority: number;
  run_at: number;
  expires_at: number | null;
  on_lost: string;
  postponed: number;
  postponed_ms: number;
  unstarted_losses: number;
  hand_backs: number;
  checkpoint_version: number | null;
}

const heldColumns = sql`run.id as run_id, run.task_id, run.agent_id, run.instance_id, run.lease_token, run.started_at as run_started_at,
    run.ended_at as run_ended_at, run.outcome as run_outcome, task.run_id as current_run, task.status, task.template, task.label, task.flow_id, task.session_key,
    task.notify_policy, task.generation, task.attempt, task.max_attempts, task.retry, task.cancel_requested_at, task.created_at,
    task.started_at, task.stream_id, task.priority, task.run_at, task.expires_at, task.on_lost, task.postponed, task.postponed_ms, task.unstarted_losses,
    task.hand_backs,
    task.checkpoint_version, task.graph`;

export const runsById = hot<{ rows: unknown[][] }, HeldRun>(
  'run.by_id',
  (d, p) => sql`
  select ${heldColumns}
  from ${d.rows(p.rows.param, { id: 'int' })} as r cross join run on run.id = r.id cross join task on task.id = run.task_id`,
);

/** Live runs whose lease or deadline is over; `deadline_at` is looked at among live runs only. */
export const overdueRuns = hot<{ now: number; limit: number }, HeldRun>(
  'run.overdue',
  (_d, p) => sql`
  select ${heldColumns} from run cross join task on task.id = run.task_id
  where run.lease_until is not null and run.lease_until <= ${p.now} order by run.lease_until limit ${p.limit}`,
);

export const runsPastDeadline = hot<{ now: number; limit: number }, HeldRun>(
  'run.past_deadline',
  (_d, p) => sql`
  select ${heldColumns} from run cross join task on task.id = run.task_id
  where run.lease_until is not null and run.deadline_at <= ${p.now} limit ${p.limit}`,
);

export const runsOfOtherInstances = hot<{ agent: string; instance: string }, HeldRun>(
  'run.of_others',
  (_d, p) => sql`
  select ${heldColumns} from run cross join task on task.id = run.task_id
  where run.lease_until is not null and run.agent_id = ${p.agent} and run.instance_id <> ${p.instance}`,
);

/** Runs of tasks whose cancel was asked for before `before` and that are still held. */
export const runsToCancel = hot<{ before: number; limit: number }, HeldRun>(
  'run.to_cancel',
  (_d, p) => sql`
  select ${heldColumns} from task cross join run on run.id = task.run_id
  where task.run_id is not null and task.cancel_requested_at is not null and task.cancel_requested_at <= ${p.before} limit ${p.limit}`,
);

export const startRuns = hot<{ rows: unknown[][]; now: number }>(
  'run.start',
  (d, p) => sql`
  update run set started_at = ${p.now} from ${d.rows(p.rows.param, { id: 'int' })} as r where run.id = r.id and run.started_at is null`,
);

export const endRuns = hot<{ rows: unknown[][]; now: number }>(
  'run.end',
  (d, p) => sql`
  update run set lease_until = null, ended_at = ${p.now}, started_at = r.started_at, outcome = r.outcome, error_class = r.error_class,
    error = r.error, exit_code = r.exit_code, signal = r.signal
  from ${d.rows(p.rows.param, {
    id: 'int',
    started_at: 'int',
    outcome: 'text',
    error_class: 'text',
    error: 'text',
    exit_code: 'int',
    signal: 'text',
  })} as r
  where run.id = r.id and ${d.guard('run.ended_at')} is null`,
);

export const extendLeases = hot<{ rows: unknown[][]; until: number }>(
  'run.extend',
  (d, p) => sql`
  update run set lease_until = ${p.until} from ${d.rows(p.rows.param, { id: 'int' })} as r
  where run.id = r.id and ${d.guard('run.lease_until')} is not null`,
);

/** Every live run keeps its lease, and its wall limit, until `until` at least. */
export const graceLeases = hot<{ until: number }>(
  'run.grace',
  (_d, p) => sql`
  update run set lease_until = ${p.until}, deadline_at = case when deadline_at < ${p.until} then ${p.until} else deadline_at end
  where lease_until is not null`,
);

export const grantsOf = hot<
  { agent: string; instance: string },
  DueTask & { run_id: number; lease_token: string; run_attempt: number }
>(
  'run.grants',
  (d, p) => sql`
  select task.id, task.template, task.runtime, task.args, task.idempotency, task.generation, task.attempt, task.timeout_ms,
    task.checkpoint_version, run.id as run_id, run.lease_token, run.attempt as run_attempt
  from run cross join task on task.id = run.task_id
  where run.lease_until is not null and run.agent_id = ${p.agent} and run.instance_id = ${p.instance} and task.status = 'leased'
  order by ${d.guard('run.id')}`,
);
