import type { Store } from '../../src/store/store.ts';
import type { InboxTable, OutboxTable } from '../../src/store/tables.ts';

/** Everything that was ever accepted, oldest first. */
export function inboxRows(store: Store): Promise<InboxTable[]> {
  return store.fetch(store.dialect.build.selectFrom('inbox').selectAll().orderBy('id'));
}

/** Everything that was ever to be sent, oldest first. */
export function outboxRows(store: Store): Promise<OutboxTable[]> {
  return store.fetch(store.dialect.build.selectFrom('outbox').selectAll().orderBy('id'));
}
