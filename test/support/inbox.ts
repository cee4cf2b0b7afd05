import type { Store } from '../../src/store/store.ts';
import type { InboxTable } from '../../src/store/tables.ts';

/** Everything that was ever accepted, oldest first. */
export function inboxRows(store: Store): Promise<InboxTable[]> {
  return store.fetch(store.dialect.build.selectFrom('inbox').selectAll().orderBy('id'));
}
