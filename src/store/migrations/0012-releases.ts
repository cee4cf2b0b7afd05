import type { Migration } from '../migrate.ts';

/**
 * Packages for agents; their content is a file in the state folder, named by its digest. And what agents tell in their heartbeats that
 * a person should see: only those that have something to tell have a row.
 */
export const releasesSchema: Migration = {
  version: 12,
  name: 'releases',
  statements: [
    `create table "release" (
      id integer primary key,
      version text not null unique,
      sha256 text not null,
      bytes integer not null,
      signature text,
      published_at integer not null,
      published_by text not null,
      withdrawn_at integer
    )`,
    `create table agent_note (
      agent_id text primary key,
      dead_count integer not null,
      dead_reason text,
      upgrade_version text,
      upgrade_state text,
      upgrade_tries integer,
      upgrade_reason text,
      at integer not null
    )`,
  ],
};
