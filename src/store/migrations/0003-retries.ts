import type { Migration } from '../migrate.ts';

/**
 * What a lost lease may do, how often a task was put back without using up an execution, and one dead letter per task that ended
 * without success.
 */
export const retriesSchema: Migration = {
  version: 3,
  name: 'retries',
  statements: [
    `alter table task add column on_lost text not null default 'retry'
      check (on_lost = 'retry' or on_lost = 'ask' or on_lost = 'fail')`,
    'alter table task add column postponed integer not null default 0',
    'alter table task add column postponed_ms integer not null default 0',
    'alter table task add column unstarted_losses integer not null default 0',

    // seq is given anew at every death: the list's order and its cursor.
    `create table dead_letter (
      task_id integer primary key references task (id) on delete cascade,
      seq integer not null unique,
      template text not null,
      session_key text,
      state text not null check (state = 'dead' or state = 'replayed' or state = 'discarded'),
      status text not null check (status = 'failed' or status = 'timed_out' or status = 'lost'),
      generation integer not null,
      attempt integer not null,
      deaths integer not null,
      error text,
      error_class text,
      reason text,
      first_died_at integer not null,
      died_at integer not null,
      decided_at integer,
      decided_by text,
      note text
    )`,
    'create index dead_letter_state on dead_letter (state, seq)',
    'create index dead_letter_template on dead_letter (template, state, seq)',
    'create index dead_letter_session on dead_letter (session_key, state, seq) where session_key is not null',
  ],
};
