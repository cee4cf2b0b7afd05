import type { Migration } from '../migrate.ts';

/** What groups listen to, questions before something old or edited is run, and when somebody was last told that they may not. */
export const accessSchema: Migration = {
  version: 16,
  name: 'access',
  statements: [
    // What the bot acts on: everything that is addressed to it, commands alone, or nothing.
    `alter table group_access add column policy text not null default 'mention'
      check (policy = 'mention' or policy = 'commands' or policy = 'off')`,
    // JSON, null for most: that it is an edit, which album it belongs to, that the bot was added to the group.
    'alter table inbox add column extra text',
    // The person was asked whether to act on it, and has not answered yet.
    'alter table inbox add column asked_at integer',
    'create index inbox_asked on inbox (session_key, id) where asked_at is not null',
    "create index inbox_failed on inbox (id) where status = 'failed'",
    // One row per person, and per group, that was told lately; older ones go.
    `create table refusal_notice (
      channel text not null,
      account text not null,
      whom text not null,
      told_at integer not null,
      primary key (channel, account, whom)
    ) without rowid`,
    'create index refusal_notice_told on refusal_notice (told_at)',
  ],
};
