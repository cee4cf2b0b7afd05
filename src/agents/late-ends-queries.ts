import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';

/** One event per run, however often it is told. */
export const insertLateEnds = hot<{ rows: unknown[][]; now: number; seq: number }>(
  'event.late_end',
  (d, p) => sql`
  insert into event (task_id, run_id, seq, type, at, data)
  select run.task_id, run.id, ${p.seq}, 'ended_earlier', ${p.now}, r.data
  from ${d.rows(p.rows.param, { run_id: 'int', data: 'json' })} as r cross join run on run.id = r.run_id
  where true
  on conflict do nothing`,
);
