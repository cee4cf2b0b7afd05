import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';

/** What explanations read besides the rows of tasks; all set-based and bounded. */

export interface WhyRunRow {
  id: number;
  agent_id: string;
  claimed_at: number;
  started_at: number | null;
  lease_until: number;
  deadline_at: number;
  /** JSON of its newest event, where that is a sign of life: {at, data}. */
  snapshot: string | null;
}

/** Of these runs those that are alive. */
export const liveRunsById = hot<{ rows: unknown[][] }, WhyRunRow>(
  'why.runs',
  (d, p) => sql`
  select run.id, run.agent_id, run.claimed_at, run.started_at, run.lease_until, run.deadline_at,
    (select case when event.type = 'snapshot' then json_object('at', event.at, 'data', json(event.data)) end from event
      where event.task_id = run.task_id and event.run_id = run.id order by event.seq desc limit 1) as snapshot
  from ${d.rows(p.rows.param, { id: 'int' })} as r cross join run on run.id = r.id where run.lease_until is not null`,
);

/** Effects that a person must settle before these tasks go on. */
export const awaitedEffects = hot<{ rows: unknown[][] }, { task_id: number; type: string }>(
  'why.effects',
  (d, p) => sql`
  select effect_wait.task_id, effect.type
  from ${d.rows(p.rows.param, { id: 'int' })} as r cross join effect_wait on effect_wait.task_id = r.id
  cross join effect on effect.id = effect_wait.effect_id
  where effect_wait.resolved_at is null and effect.state = 'init' order by ${d.guard('effect.id')}`,
);

/** Due tasks of each band, at most `limit` of one. */
export const countDue = hot<{ rows: unknown[][]; now: number; limit: number }, { place: number; count: number }>(
  'why.due',
  (d, p) => sql`
  select r.place, (select count(*) from (
    select 1 from task where task.status = 'queued' and task.stream_id = r.stream and task.priority = r.priority
      and task.run_at <= ${p.now} limit ${p.limit})) as count
  from ${d.rows(p.rows.param, { place: 'int', stream: 'int', priority: 'int' })} as r`,
);

/** Tasks of each band that come before one with this time and id, at most `limit` of one. */
export const countBefore = hot<
  { rows: unknown[][]; run_at: number; id: number; limit: number },
  { place: number; count: number }
>(
  'why.before',
  (d, p) => sql`
  select r.place, (select count(*) from (
    select 1 from task where task.status = 'queued' and task.stream_id = r.stream and task.priority = r.priority
      and (task.run_at, task.id) < (${p.run_at}, ${p.id}) limit ${p.limit})) as count
  from ${d.rows(p.rows.param, { place: 'int', stream: 'int', priority: 'int' })} as r`,
);
