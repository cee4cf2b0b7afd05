import { sql } from 'kysely';
import { isOfTask } from '../../outbox/queries.ts';
import { hot } from '../../store/dialect.ts';
import type { OutboxTable } from '../../store/outbox-tables.ts';
import type { AuditTable, InboxTable } from '../../store/tables.ts';
import type { Reader, Tx } from '../../store/tx.ts';

/** What the routes alone ask the database; everything else belongs to the verbs. */

export const inboxById = hot<{ id: number }, InboxTable>(
  'http.inbox',
  (_d, p) => sql`select * from inbox where id = ${p.id}`,
);

/** The errand that a message asked for. */
export const errandOfMessage = hot<{ id: number }, { status: string; reason: string | null; flow_id: number | null }>(
  'http.errand',
  (_d, p) => sql`select status, reason, flow_id from followup where inbox_id = ${p.id}`,
);

export type SaidRow = Pick<OutboxTable, 'id' | 'kind' | 'text' | 'status' | 'task_id' | 'created_at'>;

/** What was written because of a message, in order: its direct answer, why its errand did not start, the news of its tasks. */
export const saidAbout = hot<{ reply: string; errand: string; flow: number | null }, SaidRow>(
  'http.said',
  (_d, p) => sql`
  select id, kind, text, status, task_id, created_at from outbox where dedupe_key = ${p.reply} or dedupe_key = ${p.errand}
  union
  select id, kind, text, status, task_id, created_at from outbox where id in (
    select said.id from task cross join outbox as said on ${isOfTask('said', 'task.id')}
    where task.flow_id = ${p.flow})
  order by id`,
);

export const outboxById = hot<{ id: number }, { status: string }>(
  'http.outbox',
  (_d, p) => sql`
  select status from outbox where id = ${p.id}`,
);

/** Newest first. */
export async function auditEntries(reader: Reader, before: number | undefined, limit: number): Promise<AuditTable[]> {
  const query = reader.dialect.build.selectFrom('audit').selectAll().orderBy('id', 'desc').limit(limit);
  return reader.fetch(before === undefined ? query : query.where('id', '<', before));
}

/** Messages that are neither sent nor superseded. */
export const undelivered = hot<Record<string, never>, { status: string; count: number }>(
  'http.undelivered',
  () => sql`
  select status, count(*) as count from outbox where status = 'pending' or status = 'sending' group by status
  union all
  select status, count(*) as count from outbox where status = 'unknown' or status = 'dead' or status = 'expired' group by status`,
);

export interface OldestRow {
  inbox_new: number;
  inbox_at: number | null;
  outbox_at: number | null;
}

export const oldestWaiting = hot<Record<string, never>, OldestRow>(
  'http.oldest',
  (d) => sql`
  select (select count(*) from inbox where status = 'new') as inbox_new,
    (select received_at from inbox where id = (select min(id) from inbox where status = 'new')) as inbox_at,
    (select created_at from outbox where id = (select min(${d.guard('outbox.id')}) from outbox where status = 'pending' or status = 'sending')) as outbox_at`,
);

/** A write that means nothing: whether it reaches the disk is the question. */
export async function writeProbe(tx: Tx): Promise<void> {
  const value = String(tx.now);
  await tx.exec(
    tx.dialect.build
      .insertInto('meta')
      .values({ key: 'readyz_probe', value })
      .onConflict((conflict) => conflict.column('key').doUpdateSet({ value })),
  );
}
