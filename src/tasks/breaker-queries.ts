import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { BreakerTable } from '../store/tables.ts';
import type { Reader } from '../store/tx.ts';

/** Statements about circuit breakers; all set-based, as in queries.ts. */

/** `probe_ended_at`: when the run that probes ended, where it has. */
export type BreakerRow = BreakerTable & { probe_ended_at: number | null };

export const breakersByName = hot<{ rows: unknown[][] }, BreakerRow>(
  'breaker.by_name',
  (d, p) => sql`
  select breaker.*, run.ended_at as probe_ended_at
  from ${d.rows(p.rows.param, { name: 'text' })} as r cross join breaker on breaker.name = r.name
  left join run on run.id = breaker.probe_run`,
);

/** Writes rows whose `revision` is the stored one plus one; answers the names it wrote. */
export const saveBreakers = hot<{ rows: unknown[][] }, { name: string }>(
  'breaker.save',
  (d, p) => sql`
  insert into breaker (name, state, revision, threshold, window_ms, minimum, cooldown_ms, buckets, opened_at, until_at, reason,
    probe_run, probe_until_at, last_error, last_failure_at, changed_at)
  select name, state, revision, threshold, window_ms, minimum, cooldown_ms, buckets, opened_at, until_at, reason, probe_run,
    probe_until_at, last_error, last_failure_at, changed_at
  from ${d.rows(p.rows.param, {
    name: 'text',
    state: 'text',
    revision: 'int',
    threshold: 'real',
    window_ms: 'int',
    minimum: 'int',
    cooldown_ms: 'int',
    buckets: 'json',
    opened_at: 'int',
    until_at: 'int',
    reason: 'text',
    probe_run: 'int',
    probe_until_at: 'int',
    last_error: 'text',
    last_failure_at: 'int',
    changed_at: 'int',
  })} as r
  where true
  on conflict (name) do update set state = excluded.state, revision = excluded.revision, threshold = excluded.threshold,
    window_ms = excluded.window_ms, minimum = excluded.minimum, cooldown_ms = excluded.cooldown_ms, buckets = excluded.buckets,
    opened_at = excluded.opened_at, until_at = excluded.until_at, reason = excluded.reason, probe_run = excluded.probe_run,
    probe_until_at = excluded.probe_until_at, last_error = excluded.last_error, last_failure_at = excluded.last_failure_at,
    changed_at = excluded.changed_at
  where breaker.revision = excluded.revision - 1
  returning name`,
);

export interface EndedRun {
  id: number;
  task_id: number;
  claimed_at: number;
  outcome: string;
  error_class: string | null;
  error: string | null;
}

/** The runs of these tasks that this transaction has ended, newest first: among the last few, as new ones may have been claimed since. */
export const runsJustEnded = hot<{ rows: unknown[][]; now: number }, EndedRun>(
  'breaker.ended_runs',
  (d, p) => sql`
  select run.id, run.task_id, run.claimed_at, run.outcome, run.error_class, run.error
  from ${d.rows(p.rows.param, { task_id: 'int' })} as r cross join run
    on run.id in (select late.id from run as late where late.task_id = r.task_id order by late.id desc limit 4)
  where run.ended_at = ${p.now}`,
);

/** The first due tasks of one band: what its agents would take next. */
export const nextInBand = hot<
  { stream: number; priority: number; now: number; limit: number },
  { id: number; template: string }
>(
  'breaker.next',
  (_d, p) => sql`
  select id, template from task
  where status = 'queued' and stream_id = ${p.stream} and priority = ${p.priority} and run_at <= ${p.now}
  order by run_at, id limit ${p.limit}`,
);

/** All that ever saw a call or a person, by name; as many as templates have named. */
export function allBreakers(reader: Reader): Promise<BreakerRow[]> {
  const query = sql<BreakerRow>`
    select breaker.*, run.ended_at as probe_ended_at from breaker left join run on run.id = breaker.probe_run order by breaker.name`;
  return reader.fetch(query);
}

export async function taskOfRun(reader: Reader, runId: number): Promise<number | undefined> {
  const query = reader.dialect.build.selectFrom('run').select('task_id').where('id', '=', runId);
  return (await reader.fetch(query))[0]?.task_id;
}
