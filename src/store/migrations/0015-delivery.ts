import type { Migration } from '../migrate.ts';

/** Rates of sending that survive a restart, what goes first within a chat, edits in place, and results that come as one message. */
export const deliverySchema: Migration = {
  version: 15,
  name: 'delivery',
  statements: [
    // 0: results, answers, questions; 1: how a task goes, edits. Within a rank the ids decide.
    'alter table outbox add column rank integer not null default 0',
    // The dedupe key of the message whose text this one replaces; null: it is a message of its own.
    'alter table outbox add column edits text',
    // The message that lists this one among others that had waited too long.
    'alter table outbox add column digest_id integer',
    'drop index outbox_chat',
    "create index outbox_chat on outbox (channel, account, chat, rank, id) where status = 'pending' or status = 'sending'",
    'create index outbox_edits on outbox (edits, id) where edits is not null',
    'create index outbox_digest on outbox (digest_id) where digest_id is not null',
    // One row per chat that was written to, and one with an empty chat per account.
    `create table send_rate (
      channel text not null,
      account text not null,
      chat text not null,
      used text not null,
      free_at integer not null,
      taken_at integer not null,
      primary key (channel, account, chat)
    ) without rowid`,
  ],
};
