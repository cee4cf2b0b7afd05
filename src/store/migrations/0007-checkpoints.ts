import type { Migration } from '../migrate.ts';

/**
 * Checkpoints in a table of their own, so that the row of a task that every run rewrites stays small. The task keeps the version: null
 * where there is none, which is what most tasks ever see of this.
 */
export const checkpointsSchema: Migration = {
  version: 7,
  name: 'checkpoints',
  statements: [
    `create table checkpoint (
      task_id integer primary key references task (id) on delete cascade,
      version integer not null check (version >= 1),
      run_id integer not null,
      seq integer not null,
      at integer not null,
      bytes integer not null,
      data text not null
    )`,
    'alter table task add column checkpoint_version integer',
    `insert into checkpoint (task_id, version, run_id, seq, at, bytes, data)
      select id, 1, coalesce(run_id, 0), 0, last_event_at, length(cast(checkpoint as blob)), checkpoint from task
      where checkpoint is not null and status <> 'succeeded'`,
    'update task set checkpoint_version = 1 where id in (select task_id from checkpoint)',
    'alter table task drop column checkpoint',
  ],
};
