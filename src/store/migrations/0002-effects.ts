import type { Migration } from '../migrate.ts';

/**
 * Side effects that must not happen twice, who waits for a person's word about one, and the two paths that a trace takes from a key.
 * No reference to `task` and `run`: an effect outlives those that began it.
 */
export const effectsSchema: Migration = {
  version: 2,
  name: 'effects',
  statements: [
    `create table effect (
      id integer primary key,
      type text not null,
      key text not null,
      state text not null check (state = 'init' or state = 'success' or state = 'fail'),
      policy text not null check (policy = 'retry' or policy = 'ask' or policy = 'fail'),
      digest text,
      result text,
      error text,
      first_task_id integer not null,
      first_run_id integer not null,
      task_id integer not null,
      run_id integer,
      begins integer not null default 1,
      late text,
      resolved_by text,
      resolved_at integer,
      reason text,
      created_at integer not null,
      updated_at integer not null
    )`,
    // The key first: a trace knows it without the type.
    'create unique index effect_key on effect (key, type)',
    'create index effect_state on effect (state, id)',
    'create index effect_type on effect (type, id)',
    'create index effect_task on effect (task_id)',
    'create index effect_first_task on effect (first_task_id)',

    `create table effect_wait (
      effect_id integer not null references effect (id),
      task_id integer not null,
      run_id integer not null,
      resolved_at integer,
      primary key (effect_id, task_id)
    ) without rowid`,
    'create index effect_wait_task on effect_wait (task_id)',

    "create index task_business_key on task (idempotency ->> '$[2]') where idempotency is not null",
    'create index followup_flow on followup (flow_id) where flow_id is not null',
  ],
};
