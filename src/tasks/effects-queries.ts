import { type RawBuilder, sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { EffectTable } from '../store/tables.ts';
import type { Reader } from '../store/tx.ts';

/** An effect with what its holder does now. */
export interface EffectRow extends EffectTable {
  /** 1 while the run that began it (last) has not ended. */
  held: number;
}

const held = sql`exists (select 1 from run where run.id = effect.run_id and run.ended_at is null) as held`;

export const effectsByKey = hot<{ rows: unknown[][] }, EffectRow>(
  'effect.by_key',
  (d, p) => sql`
  select effect.*, ${held} from ${d.rows(p.rows.param, { type: 'text', key: 'text' })} as r
  cross join effect on effect.key = r.key and effect.type = r.type`,
);

export const insertEffects = hot<{ rows: unknown[][]; now: number }>(
  'effect.insert',
  (d, p) => sql`
  insert into effect (id, type, key, state, policy, digest, first_task_id, first_run_id, task_id, run_id, created_at, updated_at)
  select id, type, key, 'init', policy, digest, task_id, run_id, task_id, run_id, ${p.now}, ${p.now}
  from ${d.rows(p.rows.param, {
    id: 'int',
    type: 'text',
    key: 'text',
    policy: 'text',
    digest: 'text',
    task_id: 'int',
    run_id: 'int',
  })} as r`,
);

/** Another run goes on with an effect that is at INIT. */
export const takeEffects = hot<{ rows: unknown[][]; now: number }>(
  'effect.take',
  (d, p) => sql`
  update effect set run_id = r.run_id, task_id = r.task_id, digest = coalesce(effect.digest, r.digest), begins = effect.begins + 1,
    late = null, updated_at = ${p.now}
  from ${d.rows(p.rows.param, { id: 'int', from_run: 'int', task_id: 'int', run_id: 'int', digest: 'text' })} as r
  where effect.id = r.id and ${d.guard('effect.state')} = 'init' and effect.run_id is not distinct from r.from_run`,
);

/** The word of the run that holds it; `run_id` null gives it back. */
export const markEffects = hot<{ rows: unknown[][]; now: number }>(
  'effect.mark',
  (d, p) => sql`
  update effect set state = r.state, run_id = r.run_id, result = r.result, error = r.error, updated_at = ${p.now}
  from ${d.rows(p.rows.param, {
    id: 'int',
    from_run: 'int',
    state: 'text',
    run_id: 'int',
    result: 'text',
    error: 'text',
  })} as r
  where effect.id = r.id and ${d.guard('effect.state')} = 'init' and effect.run_id = r.from_run`,
);

/** What a run said after its end: changes nothing, and helps the person who decides. */
export const noteLateWords = hot<{ rows: unknown[][] }>(
  'effect.late',
  (d, p) => sql`
  update effect set late = r.late from ${d.rows(p.rows.param, { id: 'int', run_id: 'int', late: 'json' })} as r
  where effect.id = r.id and ${d.guard('effect.run_id')} = r.run_id and ${d.guard('effect.state')} = 'init'`,
);

/** A person's word. `run_id` null: given back. */
export const resolveEffectRows = hot<{ rows: unknown[][]; now: number }>(
  'effect.resolve',
  (d, p) => sql`
  update effect set state = r.state, run_id = r.run_id, result = r.result, error = r.error, resolved_by = r.resolved_by,
    resolved_at = ${p.now}, reason = r.reason, updated_at = ${p.now}
  from ${d.rows(p.rows.param, {
    id: 'int',
    state: 'text',
    run_id: 'int',
    result: 'text',
    error: 'text',
    resolved_by: 'text',
    reason: 'text',
  })} as r
  where effect.id = r.id`,
);

export const upsertWaits = hot<{ rows: unknown[][] }>(
  'effect_wait.upsert',
  (d, p) => sql`
  insert into effect_wait (effect_id, task_id, run_id)
  select effect_id, task_id, run_id from ${d.rows(p.rows.param, { effect_id: 'int', task_id: 'int', run_id: 'int' })} as r
  where true on conflict (effect_id, task_id) do update set run_id = excluded.run_id, resolved_at = null`,
);

/** 1 where the run that was told to ask is the last of its task, has ended as blocked, and the task waits. */
const ready = sql`(task.status = 'waiting' and run.outcome = 'blocked'
    and run.id = (select max(latest.id) from run as latest where latest.task_id = effect_wait.task_id)) as ready`;

export interface WaitRow {
  effect_id: number;
  task_id: number;
  ready: number;
  /** 1 while the run that was told to ask is still on its way out. */
  on_its_way: number;
}

export const waitsOfEffects = hot<{ rows: unknown[][] }, WaitRow>(
  'effect_wait.of_effects',
  (d, p) => sql`
  select effect_wait.effect_id, effect_wait.task_id, ${ready}, run.ended_at is null as on_its_way
  from ${d.rows(p.rows.param, { id: 'int' })} as r cross join effect_wait on effect_wait.effect_id = r.id
  cross join task on task.id = effect_wait.task_id cross join run on run.id = effect_wait.run_id`,
);

/** Of tasks that have just been blocked: those whose effect was decided on while their program was ending. */
export const resolvedWaitsOfTasks = hot<{ rows: unknown[][] }, WaitRow>(
  'effect_wait.of_tasks',
  (d, p) => sql`
  select effect_wait.effect_id, effect_wait.task_id, ${ready}, 0 as on_its_way
  from ${d.rows(p.rows.param, { id: 'int' })} as r cross join effect_wait on effect_wait.task_id = r.id
  cross join task on task.id = effect_wait.task_id cross join run on run.id = effect_wait.run_id
  where effect_wait.resolved_at is not null`,
);

export const markWaitsResolved = hot<{ rows: unknown[][]; now: number }>(
  'effect_wait.resolve',
  (d, p) => sql`
  update effect_wait set resolved_at = ${p.now} where (effect_id, task_id) in (
    select r.effect_id, r.task_id from ${d.rows(p.rows.param, { effect_id: 'int', task_id: 'int' })} as r)`,
);

export const deleteWaits = hot<{ rows: unknown[][] }>(
  'effect_wait.delete',
  (d, p) => sql`
  delete from effect_wait where (effect_id, task_id) in (
    select r.effect_id, r.task_id from ${d.rows(p.rows.param, { effect_id: 'int', task_id: 'int' })} as r)`,
);

export interface EffectFilter {
  state?: string;
  type?: string;
  taskId?: number;
  /** Only effects with a smaller id; for pages. */
  before?: number;
  limit: number;
}

/** Newest first. */
export async function selectEffects(reader: Reader, filter: EffectFilter): Promise<EffectRow[]> {
  const where: RawBuilder<unknown>[] = [];
  if (filter.state !== undefined) where.push(sql`effect.state = ${filter.state}`);
  if (filter.type !== undefined) where.push(sql`effect.type = ${filter.type}`);
  if (filter.taskId !== undefined)
    where.push(sql`(effect.task_id = ${filter.taskId} or effect.first_task_id = ${filter.taskId})`);
  if (filter.before !== undefined) where.push(sql`effect.id < ${filter.before}`);
  const condition = where.length === 0 ? sql`` : sql`where ${sql.join(where, sql` and `)}`;
  return reader.fetch(sql<EffectRow>`
    select effect.*, ${held} from effect ${condition} order by effect.id desc limit ${filter.limit}`);
}

export async function selectEffect(reader: Reader, type: string, key: string): Promise<EffectRow | undefined> {
  return (await reader.all(effectsByKey, { rows: [[type, key]] }))[0];
}

/** Tasks that wait for a person's word about these effects, blocked or about to be. */
export async function selectWaiting(reader: Reader, effectIds: readonly number[]): Promise<WaitRow[]> {
  if (effectIds.length === 0) return [];
  const rows = await reader.all(waitsOfEffects, { rows: effectIds.map((id) => [id]) });
  return rows.filter((row) => row.ready === 1 || row.on_its_way === 1);
}
