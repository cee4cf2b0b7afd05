import type { Migration } from '../migrate.ts';

/** What agents say of their health, who was told that one is away, and which logs are followed in chats. */
export const healthSchema: Migration = {
  version: 11,
  name: 'health',
  statements: [
    `create table agent_diagnostic (
      id integer primary key,
      agent_id text not null,
      at integer not null,
      failed text not null,
      bundle text not null
    )`,
    'create index agent_diagnostic_agent on agent_diagnostic (agent_id, id)',
    // There while people believe the agent to be away; gone once they were told that it is back.
    `create table agent_alert (
      agent_id text primary key,
      offline_at integer not null,
      told_at integer not null,
      back_at integer
    ) without rowid`,
    `create table log_follow (
      id integer primary key,
      task_id integer not null,
      session_key text not null,
      route text not null,
      lang text not null,
      run_id integer not null,
      seq integer not null,
      sent integer not null,
      next_at integer not null,
      give_up_at integer not null
    )`,
    'create index log_follow_due on log_follow (next_at)',
    'create index log_follow_session on log_follow (session_key)',
    // Of the few messages that were changed after they were shown.
    'alter table outbox add column edited_at integer',
    'create index outbox_edited on outbox (session_key, edited_at) where edited_at is not null',
  ],
};
