import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { CheckpointTable } from '../store/retry-tables.ts';

/** Statements of checkpoints; all set-based, as in queries.ts. Only tasks that have one run them. */

/** The caller has checked that the run is the current one. Of one run the report with the higher number stays. */
export const upsertCheckpoints = hot<{ rows: unknown[][]; now: number }, { task_id: number; version: number }>(
  'checkpoint.upsert',
  (d, p) => sql`
  insert into checkpoint (task_id, version, run_id, seq, at, bytes, data)
  select task_id, 1, run_id, seq, ${p.now}, bytes, data
  from ${d.rows(p.rows.param, { task_id: 'int', run_id: 'int', seq: 'int', bytes: 'int', data: 'text' })} as r
  where true
  on conflict (task_id) do update set version = checkpoint.version + 1, run_id = excluded.run_id, seq = excluded.seq,
    at = excluded.at, bytes = excluded.bytes, data = excluded.data
  where checkpoint.run_id <> excluded.run_id or checkpoint.seq < excluded.seq
  returning task_id, version`,
);

export const markCheckpoints = hot<{ rows: unknown[][]; now: number }>(
  'checkpoint.mark',
  (d, p) => sql`
  update task set checkpoint_version = r.version, last_event_at = ${p.now}
  from ${d.rows(p.rows.param, { id: 'int', version: 'int' })} as r where task.id = r.id`,
);

export const checkpointsByTask = hot<{ rows: unknown[][] }, CheckpointTable>(
  'checkpoint.by_task',
  (d, p) => sql`
  select checkpoint.* from ${d.rows(p.rows.param, { id: 'int' })} as r cross join checkpoint on checkpoint.task_id = r.id`,
);

export const deleteCheckpoints = hot<{ rows: unknown[][] }>(
  'checkpoint.delete',
  (d, p) => sql`delete from checkpoint where task_id in (select r.id from ${d.rows(p.rows.param, { id: 'int' })} as r)`,
);

export const unmarkCheckpoints = hot<{ rows: unknown[][] }>(
  'checkpoint.unmark',
  (d, p) => sql`
  update task set checkpoint_version = null from ${d.rows(p.rows.param, { id: 'int' })} as r where task.id = r.id`,
);
