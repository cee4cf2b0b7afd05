import type { Migration } from '../migrate.ts';

/** Before a finished task is pruned: does a live one call it its parent? Tasks without a parent pay nothing. */
export const retentionSchema: Migration = {
  version: 4,
  name: 'retention',
  statements: ['create index task_parent on task (parent_id) where parent_id is not null'],
};
