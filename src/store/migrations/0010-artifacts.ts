import type { Migration } from '../migrate.ts';

/** Files that runs have brought home. The bytes lie in the state folder under `file`, a name that is made up for each. */
export const artifactsSchema: Migration = {
  version: 10,
  name: 'artifacts',
  statements: [
    `create table artifact (
      id integer primary key,
      task_id integer not null references task (id) on delete cascade,
      run_id integer not null,
      name text not null,
      bytes integer not null check (bytes >= 0),
      sha256 text not null,
      file text not null unique,
      created_at integer not null
    )`,
    'create index artifact_task on artifact (task_id)',
    'create unique index artifact_run on artifact (run_id, name)',
  ],
};
