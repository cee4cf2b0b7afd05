import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { TaskRefRow } from './task.ts';

/** A run that has not ended, with what its task's success is told by. */
export interface LiveRun extends TaskRefRow {
  run_id: number;
  /** The task. */
  id: number;
  status: string;
  attempt: number;
  created_at: number;
  cancel_requested_at: number | null;
  checkpoint_version: number | null;
}

/**
 * The whole fence: a run that has not ended is the current one of its task, so agent and token decide. The two updates that follow in
 * the same transaction need no answer of their own: an update that answers rows costs more than this and they together.
 */
export const liveRuns = hot<{ rows: unknown[][] }, LiveRun>(
  'run.live',
  (d, p) => sql`
  select run.id as run_id, task.id, task.status, task.template, task.label, task.flow_id, task.session_key, task.notify_policy,
    task.generation, task.attempt, task.created_at, task.cancel_requested_at, task.checkpoint_version, task.graph
  from ${d.rows(p.rows.param, { id: 'int', agent: 'text', token: 'text' })} as r
  cross join run on run.id = r.id and ${d.guard('run.agent_id')} = r.agent and run.lease_token = r.token and run.ended_at is null
  cross join task on task.id = run.task_id and ${d.guard('task.run_id')} = run.id`,
);

export const succeedRuns = hot<{ rows: unknown[][]; now: number }>(
  'run.succeed',
  (d, p) => sql`
  update run set lease_until = null, ended_at = ${p.now}, started_at = coalesce(run.started_at, ${p.now}), outcome = 'succeeded',
    exit_code = r.exit_code
  from ${d.rows(p.rows.param, { id: 'int', exit_code: 'int' })} as r
  where run.id = r.id and ${d.guard('run.ended_at')} is null`,
);

export const succeedTasks = hot<{ rows: unknown[][]; now: number; cleanup: number }>(
  'task.succeed',
  (d, p) => sql`
  update task set status = 'succeeded', run_id = null, attempt = case when status = 'leased' then attempt + 1 else attempt end,
    started_at = coalesce(started_at, ${p.now}), ended_at = ${p.now}, last_event_at = ${p.now}, summary = r.summary,
    outputs = ${d.merge('task.outputs', 'r.outputs')}, error = null, error_class = null, question = null,
    reason = case when cancel_requested_at is null then null else 'finished_before_cancel' end, cleanup_after = ${p.cleanup},
    delivery_status = case when session_key is null or notify_policy = 'silent' then 'not_applicable' else 'session_queued' end
  from ${d.rows(p.rows.param, { id: 'int', run: 'int', summary: 'text', outputs: 'json' })} as r
  where task.id = r.id and ${d.guard('task.run_id')} = r.run`,
);
