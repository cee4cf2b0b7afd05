import type { Migration } from '../migrate.ts';

/** How a message looks where the platform can show it: its text with marks (src/rich-text.ts). Null: plain. */
export const marksSchema: Migration = {
  version: 14,
  name: 'marks',
  statements: ['alter table outbox add column marks text'],
};
