import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { AgentNoteTable, ReleaseTable } from '../store/release-tables.ts';
import type { Reader, Tx } from '../store/tx.ts';

/** Statements of releases. None is hot: what agents ask all the time is answered from memory. */

export async function allReleases(reader: Reader): Promise<ReleaseTable[]> {
  return reader.fetch(reader.dialect.build.selectFrom('release').selectAll().orderBy('id', 'desc'));
}

/** Takes the place of the row of its version: the newest id is the current release. */
export async function putRelease(tx: Tx, row: ReleaseTable): Promise<void> {
  const { version: _version, ...changes } = row;
  await tx.exec(
    tx.dialect.build
      .insertInto('release')
      .values(row)
      .onConflict((conflict) => conflict.column('version').doUpdateSet(changes)),
  );
}

/** Answers whether there was one to withdraw. */
export async function markWithdrawn(tx: Tx, version: string): Promise<boolean> {
  const changed = await tx.exec(
    tx.dialect.build
      .updateTable('release')
      .set({ withdrawn_at: tx.now })
      .where('version', '=', version)
      .where('withdrawn_at', 'is', null),
  );
  return changed > 0;
}

export async function allNotes(reader: Reader): Promise<AgentNoteTable[]> {
  return reader.fetch(reader.dialect.build.selectFrom('agent_note').selectAll());
}

export const upsertNote = hot<{ rows: unknown[][] }>(
  'agent_note.upsert',
  (d, p) => sql`
  insert into agent_note (agent_id, dead_count, dead_reason, upgrade_version, upgrade_state, upgrade_tries, upgrade_reason,
    at)
  select agent_id, dead_count, dead_reason, upgrade_version, upgrade_state, upgrade_tries, upgrade_reason, at
  from ${d.rows(p.rows.param, {
    agent_id: 'text',
    dead_count: 'int',
    dead_reason: 'text',
    upgrade_version: 'text',
    upgrade_state: 'text',
    upgrade_tries: 'int',
    upgrade_reason: 'text',
    at: 'int',
  })} as r
  where true
  on conflict (agent_id) do update set dead_count = excluded.dead_count, dead_reason = excluded.dead_reason, upgrade_version = excluded.upgrade_version,
    upgrade_state = excluded.upgrade_state, upgrade_tries = excluded.upgrade_tries,
    upgrade_reason = excluded.upgrade_reason, at = excluded.at`,
);
