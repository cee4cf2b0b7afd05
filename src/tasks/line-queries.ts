import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { Stream, StreamKey } from './streams.ts';

/** Hot statements of the waiting line: streams, bands, limits. All set-based, as in queries.ts. */

export const insertStreams = hot<{ rows: unknown[][]; now: number }>(
  'stream.insert',
  (d, p) => sql`
  insert into stream (id, queue, owner, template, lane, serial, created_at)
  select id, queue, owner, template, lane, serial, ${p.now}
  from ${d.rows(p.rows.param, { id: 'int', queue: 'text', owner: 'text', template: 'text', lane: 'text', serial: 'text' })} as r
  where true on conflict do nothing`,
);

export const streamsByKey = hot<{ rows: unknown[][] }, { place: number; id: number }>(
  'stream.by_key',
  (d, p) => sql`
  select r.place, stream.id
  from ${d.rows(p.rows.param, { place: 'int', queue: 'text', owner: 'text', template: 'text', lane: 'text', serial: 'text' })} as r
  cross join stream on stream.queue = r.queue and stream.owner = r.owner and stream.template = r.template and stream.lane = r.lane
    and stream.serial = r.serial`,
);

export const streamsById = hot<{ rows: unknown[][] }, Stream>(
  'stream.by_id',
  (d, p) => sql`
  select stream.id, stream.queue, stream.owner, stream.template, stream.lane, stream.serial
  from ${d.rows(p.rows.param, { id: 'int' })} as r cross join stream on stream.id = r.id`,
);

/** `waiting (stream_id)`: the streams that have a queued task, each found by one step along the claim index; `level`: the priorities. */
export const streamWalk = sql`
  with recursive waiting (stream_id) as (
    select min(stream_id) from task where status = 'queued'
    union all
    select (select min(t.stream_id) from task as t where t.status = 'queued' and t.stream_id > waiting.stream_id)
    from waiting where waiting.stream_id is not null
  ),
  level (priority) as (values (0), (1), (2))`;

/** All bands that have a queued task, with their first one's time. */
export const allBands = hot<Record<string, never>, Stream & { priority: number; head_at: number }>(
  'line.bands',
  () => sql`
  ${streamWalk}
  select level.priority, task.run_at as head_at, stream.id, stream.queue, stream.owner, stream.template, stream.lane, stream.serial
  from waiting cross join stream on stream.id = waiting.stream_id cross join level cross join task on task.id = (
    select t.id from task as t where t.status = 'queued' and t.stream_id = waiting.stream_id and t.priority = level.priority
    order by t.run_at, t.id limit 1
  )`,
);

/** When the first task of each band may start; bands that are empty are missing. */
export const bandHeads = hot<{ rows: unknown[][] }, { place: number; head_at: number }>(
  'line.heads',
  (d, p) => sql`
  select r.place, task.run_at as head_at
  from ${d.rows(p.rows.param, { place: 'int', stream: 'int', priority: 'int' })} as r cross join task on task.id = (
    select t.id from task as t where t.status = 'queued' and t.stream_id = r.stream and t.priority = r.priority
    order by t.run_at, t.id limit 1
  )`,
);

/** Slots whose run is over; looked for where they are about to be counted. */
export const freeSlots = hot<{ rows: unknown[][] }>(
  'slot.free',
  (d, p) => sql`
  delete from slot where scope in (select scope from ${d.rows(p.rows.param, { scope: 'text' })} as r)
    and not exists (select 1 from run where run.id = slot.run_id and run.lease_until is not null)`,
);

/** The streams of all live runs: as many as agents work on. */
export const liveStreams = hot<Record<string, never>, StreamKey & { run_id: number }>(
  'slot.live',
  () => sql`
  select run.id as run_id, stream.queue, stream.owner, stream.template, stream.lane, stream.serial
  from run cross join task on task.id = run.task_id cross join stream on stream.id = task.stream_id
  where run.lease_until is not null`,
);

/** Slots whose run is over, wherever nobody counts them any more. */
export const dropSlots = hot<{ limit: number }>(
  'slot.drop',
  (_d, p) => sql`
  delete from slot where (scope, run_id) in (
    select dead.scope, dead.run_id from slot as dead
    where not exists (select 1 from run where run.id = dead.run_id and run.lease_until is not null) limit ${p.limit}
  )`,
);

export const countSlots = hot<{ rows: unknown[][] }, { scope: string; used: number }>(
  'slot.count',
  (d, p) => sql`
  select r.scope, (select count(*) from slot where slot.scope = r.scope) as used
  from ${d.rows(p.rows.param, { scope: 'text' })} as r`,
);

export const insertSlots = hot<{ rows: unknown[][] }>(
  'slot.insert',
  (d, p) => sql`
  insert into slot (scope, run_id) select scope, run_id from ${d.rows(p.rows.param, { scope: 'text', run_id: 'int' })} as r
  where true on conflict do nothing`,
);

export const rateBuckets = hot<{ rows: unknown[][] }, { template: string; tokens: number; at: number }>(
  'rate.read',
  (d, p) => sql`
  select rate_bucket.template, rate_bucket.tokens, rate_bucket.at
  from ${d.rows(p.rows.param, { template: 'text' })} as r cross join rate_bucket on rate_bucket.template = r.template`,
);

export const storeRates = hot<{ rows: unknown[][]; now: number }>(
  'rate.store',
  (d, p) => sql`
  insert into rate_bucket (template, tokens, at)
  select template, tokens, ${p.now} from ${d.rows(p.rows.param, { template: 'text', tokens: 'real' })} as r
  where true on conflict (template) do update set tokens = excluded.tokens, at = excluded.at`,
);

export interface GateRow {
  kind: string;
  name: string;
  concurrency: number | null;
  paused_at: number | null;
  reason: string | null;
}

/** Every limit and pause that a person has set: few. */
export const allGates = hot<Record<string, never>, GateRow>(
  'gate.all',
  () => sql`select kind, name, concurrency, paused_at, reason from gate`,
);
