import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { InboxTable } from '../store/tables.ts';
import type { Reader } from '../store/tx.ts';

/** Newest first, from before this id. */
export function parkedMessages(
  reader: Reader,
  { before, limit }: { readonly before: number | undefined; readonly limit: number },
): Promise<InboxTable[]> {
  const failed = reader.dialect.build.selectFrom('inbox').selectAll().where('status', '=', sql.lit('failed'));
  const query = failed.orderBy('id', 'desc').limit(limit);
  return reader.fetch(before === undefined ? query : query.where('id', '<', before));
}

/** Answers the row that is new again. */
export const reviveParked = hot<{ id: number }, { id: number }>(
  'inbox.revive',
  (_d, p) => sql`
  update inbox set status = 'new', attempts = 0, reason = null, done_at = null
  where id = ${p.id} and status = 'failed' returning id`,
);

/** Gives what was said of it another key, so that its answer is none that was said before. */
export const renameReply = hot<{ old: string; key: string }>(
  'inbox.rename_reply',
  (_d, p) => sql`update outbox set dedupe_key = ${p.key} where dedupe_key = ${p.old}`,
);
