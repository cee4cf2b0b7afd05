import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { StreamTable } from '../store/line-tables.ts';

/** Statements of the pruning of streams; set-based. Tasks have no index by stream, which would cost each of them a write. */

export const streamsAfter = hot<{ after: number; limit: number }, { id: number }>(
  'retention.walk_stream',
  (_d, p) => sql`select id from stream where id > ${p.after} order by id limit ${p.limit}`,
);

/** The streams of the next tasks after an id, each with its last task among them. */
export const streamsOfTasks = hot<{ after: number; limit: number }, { stream_id: number; last: number; count: number }>(
  'retention.streams_of_tasks',
  (_d, p) => sql`
  select stream_id, max(id) as last, count(*) as count
  from (select id, stream_id from task where id > ${p.after} order by id limit ${p.limit}) as slice group by stream_id`,
);

export const streamRows = hot<{ rows: unknown[][] }, StreamTable>(
  'retention.rows_stream',
  (d, p) => sql`
  select stream.* from ${d.rows(p.rows.param, { id: 'int' })} as r cross join stream on stream.id = r.id`,
);

export const removeStreams = hot<{ rows: unknown[][] }>(
  'retention.remove_stream',
  (d, p) => sql`delete from stream where id in (select r.id from ${d.rows(p.rows.param, { id: 'int' })} as r)`,
);
