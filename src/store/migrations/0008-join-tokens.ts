import type { Migration } from '../migrate.ts';

/**
 * Join tokens, and what makes a lost answer of a join repeatable: whether the credential that it gave was ever used, and by which join
 * it came.
 */
export const joinTokensSchema: Migration = {
  version: 8,
  name: 'join-tokens',
  statements: [
    `create table join_token (
      id integer primary key,
      token_hash text not null unique,
      agent_id text,
      pools text not null,
      labels text not null,
      created_at integer not null,
      expires_at integer not null,
      used_at integer,
      machine_hash text,
      joined_agent_id text,
      agent_token_id integer,
      check ((used_at is null) = (joined_agent_id is null) and (used_at is null) = (agent_token_id is null)),
      check (machine_hash is null or used_at is not null)
    )`,
    'alter table agent_token add column used_at integer',
    'alter table agent_token add column join_id integer',
  ],
};
