import type { Migration } from '../migrate.ts';

/** Tasks that need other tasks of their flow, and flows that are told and stopped as a whole. */
export const needsSchema: Migration = {
  version: 6,
  name: 'needs',
  statements: [
    // 1: may need, or be needed by, others of its flow. All other tasks are never looked up in `need`.
    'alter table task add column graph integer not null default 0',
    // Of a task that waits for its needs: its time to live, which begins when it is queued.
    'alter table task add column queue_ttl_ms integer',

    // 1: submitted as a whole, told with one message at its end.
    'alter table flow add column graph integer not null default 0',
    'alter table flow add column deadline_at integer',
    `create index flow_deadline on flow (deadline_at)
      where deadline_at is not null and ended_at is null and cancel_requested_at is null`,

    // No foreign key: it would be looked at with every task that is inserted.
    `create table need (
      task_id integer not null,
      on_task_id integer not null,
      condition text not null check (condition = 'success' or condition = 'always'),
      met integer not null check (met = 0 or met = 1),
      primary key (task_id, on_task_id),
      check (task_id <> on_task_id)
    ) without rowid`,
    'create index need_on on need (on_task_id, task_id)',
    'create index need_unmet on need (task_id) where met = 0',
  ],
};
