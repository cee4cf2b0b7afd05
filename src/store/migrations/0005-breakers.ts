import type { Migration } from '../migrate.ts';

/** Circuit breakers, one row each, shared by all replicas. */
export const breakersSchema: Migration = {
  version: 5,
  name: 'breakers',
  statements: [
    `create table breaker (
      name text primary key,
      state text not null check (state = 'closed' or state = 'open' or state = 'half_open'),
      revision integer not null,
      threshold real not null,
      window_ms integer not null,
      minimum integer not null,
      cooldown_ms integer not null,
      buckets text not null,
      opened_at integer,
      until_at integer,
      reason text,
      probe_run integer,
      probe_until_at integer,
      last_error text,
      last_failure_at integer,
      changed_at integer not null,
      check ((state = 'closed') = (opened_at is null)),
      check ((opened_at is null) = (until_at is null) and (opened_at is null) = (reason is null)),
      check (probe_run is null or state = 'half_open')
    ) without rowid`,
  ],
};
