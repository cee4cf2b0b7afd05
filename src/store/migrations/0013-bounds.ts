import type { Migration } from '../migrate.ts';

/**
 * What bounds a wait: when a pause was asked for, so that a clock that was set back does not make it longer, and how often a task was
 * handed back. And what the engine itself has to say about an end, in its second language.
 */
export const boundsSchema: Migration = {
  version: 13,
  name: 'bounds',
  statements: [
    'alter table chat_hold add column held_at integer',
    // When `next_at` was put off last; null: it is as old as the message.
    'alter table outbox add column put_off_at integer',
    'alter table task add column error_zh text',
    'alter table task add column hand_backs integer not null default 0',
  ],
};
