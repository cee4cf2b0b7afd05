import { type RawBuilder, sql } from 'kysely';
import { isOfTask } from '../outbox/queries.ts';
import { type HotQuery, hot } from '../store/dialect.ts';

/**
 * What grows old, kind by kind. There is no index over ages: ids are given in the order of time, so the old rows of a table are the
 * first ones of its key, and the tables that every task writes to pay nothing for being pruned.
 */

/** Moments, epoch milliseconds. */
export interface Cutoffs extends Record<string, unknown> {
  now: number;
  /** Finished things that ended before this are due. */
  before: number;
  /** Messages that came in before this are due: their identity has to be known for longer. */
  inbox_before: number;
  /** Audit entries from before this are due. */
  audit_before: number;
}

export type Key = number | string;
type Row = Record<string, unknown>;
type Walk = Cutoffs & { after: Key; limit: number };

export interface Candidate {
  key: Key;
  /** When the row was made. */
  at: number;
  due: number;
}

/** Rows that are archived and pruned together with the row that they belong to. */
export interface Part {
  readonly table: string;
  /** Secrets and their digests: not archived. */
  readonly secret: readonly string[];
  /** The part's rows of these keys. */
  readonly rows: HotQuery<{ rows: Key[][] }, Row>;
  readonly remove: HotQuery<{ rows: Key[][] }, never>;
  /** The column that holds the key. */
  readonly owner: string;
}

export interface Kind {
  readonly table: string;
  /** Before the first key. */
  readonly start: Key;
  /** Which cutoff a row must be older than before it can be due: the walk ends at the first younger one. Null: walk through all. */
  readonly ageOf: 'before' | 'inbox_before' | 'audit_before' | null;
  /** The next rows by key, and whether each is due. */
  readonly candidates: HotQuery<Walk, Candidate>;
  /** Those of the keys that are due (still). */
  readonly due: HotQuery<Cutoffs & { rows: Key[][] }, { key: Key }>;
  /** In the order in which they may be removed: the row itself last. */
  readonly parts: readonly Part[];
}

type Places = { readonly [K in keyof Cutoffs]: RawBuilder<never> };

interface KindSpec {
  table: string;
  key?: { column: string; type: 'int' | 'text'; start: Key };
  at?: string;
  ageOf: Kind['ageOf'];
  /** About the row `t`. */
  isDue(p: Places): RawBuilder<unknown>;
  parts?: readonly { table: string; owner: string; secret?: readonly string[] }[];
  secret?: readonly string[];
}

/** Nobody knows how it ended, or it was given back lately and may be begun again. One that nobody has begun since is over. */
function isOpenEffect(row: 'effect' | 't', p: Places) {
  const column = (name: string) => sql.ref(`${row}.${name}`);
  return sql`(${column('state')} = 'init' and (${column('run_id')} is not null or ${column('updated_at')} > ${p.before}))`;
}

/**
 * In the order in which they are pruned: what others refer to comes after them. What is live, undecided or undelivered is never due,
 * and neither is what it needs.
 */
export const KINDS: readonly Kind[] = [
  kindOf({
    table: 'task',
    ageOf: 'before',
    // `cleanup_after` holds what the setting was at its end, and today's decides; a row without one is kept (`tasks audit` finds it).
    isDue: (p) => sql`t.cleanup_after is not null and t.ended_at <= ${p.before}
      and (t.flow_id is null or exists (select 1 from flow where flow.id = t.flow_id and flow.ended_at is not null))
      and not exists (select 1 from task as child where child.parent_id = t.id and child.ended_at is null)
      and not exists (select 1 from need cross join task as other on other.id = need.task_id
        where need.on_task_id = t.id and other.ended_at is null)
      and not exists (select 1 from dead_letter where dead_letter.task_id = t.id and dead_letter.state = 'dead')
      and not exists (select 1 from effect where effect.task_id = t.id and ${isOpenEffect('effect', p)})
      and not exists (select 1 from effect where effect.first_task_id = t.id and ${isOpenEffect('effect', p)})
      and not exists (select 1 from outbox where ${isOfTask('outbox', 't.id')}
        and (outbox.status = 'pending' or outbox.status = 'sending' or outbox.status = 'unknown'))`,
    parts: [
      { table: 'event', owner: 'task_id' },
      { table: 'run', owner: 'task_id', secret: ['lease_token'] },
      { table: 'dead_letter', owner: 'task_id' },
      { table: 'need', owner: 'task_id' },
      { table: 'checkpoint', owner: 'task_id' },
      { table: 'artifact', owner: 'task_id' },
    ],
  }),
  kindOf({
    table: 'effect',
    ageOf: 'before',
    isDue: (p) => sql`not ${isOpenEffect('t', p)} and t.updated_at <= ${p.before}
      and not exists (select 1 from task where task.id = t.task_id)
      and not exists (select 1 from task where task.id = t.first_task_id)`,
    parts: [{ table: 'effect_wait', owner: 'effect_id' }],
  }),
  kindOf({
    table: 'outbox',
    ageOf: 'before',
    isDue: (p) => sql`(t.status = 'sent' or t.status = 'dead' or t.status = 'superseded' or t.status = 'expired')
      and coalesce(t.sent_at, t.next_at) <= ${p.before}`,
  }),
  kindOf({
    table: 'followup',
    ageOf: 'inbox_before',
    isDue: (p) => sql`t.status <> 'queued' and coalesce(t.done_at, t.created_at) <= ${p.inbox_before}
      and not exists (select 1 from flow where flow.id = t.flow_id and flow.ended_at is null)
      and not exists (select 1 from task where task.flow_id = t.flow_id)`,
  }),
  kindOf({
    table: 'flow',
    ageOf: 'before',
    isDue: (p) => sql`t.ended_at is not null and t.ended_at <= ${p.before}
      and not exists (select 1 from task where task.flow_id = t.id)
      and not exists (select 1 from followup where followup.flow_id = t.id)`,
  }),
  kindOf({
    table: 'inbox',
    at: 'received_at',
    ageOf: 'inbox_before',
    isDue: (p) => sql`t.status <> 'new' and coalesce(t.done_at, t.received_at) <= ${p.inbox_before}
      and not exists (select 1 from followup where followup.inbox_id = t.id)`,
  }),
  kindOf({
    table: 'login',
    key: { column: 'token_hash', type: 'text', start: '' },
    ageOf: null,
    isDue: (p) => sql`t.expires_at <= ${p.now}`,
    secret: ['token_hash'],
  }),
  kindOf({ table: 'pairing', ageOf: null, isDue: (p) => sql`t.expires_at <= ${p.now}`, secret: ['code_hash'] }),
  kindOf({ table: 'audit', at: 'at', ageOf: 'audit_before', isDue: (p) => sql`t.at <= ${p.audit_before}` }),
];

function kindOf(spec: KindSpec): Kind {
  const { table, ageOf, isDue, at = 'created_at', secret = [] } = spec;
  const { column, type, start } = spec.key ?? { column: 'id', type: 'int', start: 0 };
  const [name, key] = [sql.table(table), sql.ref(`t.${column}`)];
  return {
    table,
    start,
    ageOf,
    candidates: hot<Walk, Candidate>(
      `retention.walk_${table}`,
      (_d, p) => sql`
      select ${key} as key, ${sql.ref(`t.${at}`)} as at, (${isDue(p)}) as due from ${name} as t
      where ${key} > ${p.after} order by ${key} limit ${p.limit}`,
    ),
    due: hot<Cutoffs & { rows: Key[][] }, { key: Key }>(
      `retention.due_${table}`,
      (d, p) => sql`
      select r.key from ${d.rows(p.rows.param, { key: type })} as r cross join ${name} as t
      where ${key} = r.key and ${isDue(p)}`,
    ),
    parts: [
      ...(spec.parts ?? []).map((part) => partOf(part.table, part.owner, type, part.secret ?? [])),
      partOf(table, column, type, secret),
    ],
  };
}

function partOf(table: string, owner: string, type: 'int' | 'text', secret: readonly string[]): Part {
  const [name, column] = [sql.table(table), sql.ref(`t.${owner}`)];
  return {
    table,
    secret,
    owner,
    rows: hot<{ rows: Key[][] }, Row>(
      `retention.rows_${table}`,
      (d, p) => sql`
      select t.* from ${d.rows(p.rows.param, { key: type })} as r cross join ${name} as t where ${column} = r.key`,
    ),
    remove: hot<{ rows: Key[][] }>(
      `retention.remove_${table}`,
      (d, p) => sql`
      delete from ${name} where ${sql.ref(owner)} in (select r.key from ${d.rows(p.rows.param, { key: type })} as r)`,
    ),
  };
}

/** When a pass last looked, by the clock of that time. */
export const lastPass = hot<Record<string, never>, { value: string }>(
  'retention.last_pass',
  () => sql`select value from meta where key = 'retention_seen_at'`,
);

export const recordPass = hot<{ now: string }>(
  'retention.record_pass',
  (_d, p) => sql`
  insert into meta (key, value) values ('retention_seen_at', ${p.now}) on conflict (key) do update set value = excluded.value`,
);

/** Gives the pass back, so that the next one need not wait. */
export const releasePass = hot<{ name: string; holder: string; now: number }>(
  'retention.release',
  (_d, p) => sql`update named_lease set until = ${p.now} where name = ${p.name} and holder = ${p.holder}`,
);

/** A lease that ends later than any honest one was taken under a wrong clock, and would be held until that time comes. */
export const healLease = hot<{ name: string; latest: number; now: number }>(
  'retention.heal_lease',
  (_d, p) => sql`update named_lease set until = ${p.now} where name = ${p.name} and until > ${p.latest}`,
);
