import { sql } from 'kysely';
import type { AgentDrainTable, AgentTable, AgentTokenTable } from '../store/agent-tables.ts';
import { hot } from '../store/dialect.ts';
import type { Reader, Tx } from '../store/tx.ts';

export const tokenByHash = hot<{ hash: string }, AgentTokenTable>(
  'agent_token.by_hash',
  (_d, p) => sql`
  select * from agent_token where token_hash = ${p.hash}`,
);

export const agentById = hot<{ id: string }, AgentTable>(
  'agent.by_id',
  (_d, p) => sql`select * from agent where agent_id = ${p.id}`,
);

export const touchAgents = hot<{ rows: unknown[][] }>(
  'agent.touch',
  (d, p) => sql`
  update agent set last_seen_at = r.at, load = coalesce(r.load, agent.load), offline_at = null
  from ${d.rows(p.rows.param, { id: 'text', instance: 'text', at: 'int', load: 'real' })} as r
  where agent.agent_id = r.id and ${d.guard('agent.instance_id')} = r.instance and r.at >= agent.last_seen_at`,
);

/** Agents unheard of since `before` that are not marked yet. */
export const markOffline = hot<{ before: number; now: number }, { agent_id: string }>(
  'agent.offline',
  (_d, p) => sql`
  update agent set offline_at = ${p.now} where offline_at is null and last_seen_at <= ${p.before} returning agent_id`,
);

export async function upsertAgent(tx: Tx, row: AgentTable): Promise<void> {
  const { agent_id: _id, ...changes } = row;
  await tx.exec(
    tx.dialect.build
      .insertInto('agent')
      .values(row)
      .onConflict((conflict) => conflict.column('agent_id').doUpdateSet(changes)),
  );
}

export async function listAgents(reader: Reader): Promise<AgentTable[]> {
  return reader.fetch(reader.dialect.build.selectFrom('agent').selectAll().orderBy('agent_id'));
}

export async function insertToken(tx: Tx, row: AgentTokenTable): Promise<void> {
  await tx.exec(tx.dialect.build.insertInto('agent_token').values(row));
}

/** Ends the credentials of an agent, but the one with the id `kept`; answers which. */
export async function revokeTokens(tx: Tx, agentId: string, kept = 0): Promise<number[]> {
  const revoked = await tx.fetch(
    tx.dialect.build
      .updateTable('agent_token')
      .set({ revoked_at: tx.now })
      .where('agent_id', '=', agentId)
      .where('revoked_at', 'is', null)
      .where('id', '<>', kept)
      .returning('id'),
  );
  return revoked.map(({ id }) => id);
}

/** Notes that a credential was presented. False: it has been revoked. */
export async function markTokenUsed(tx: Tx, id: number): Promise<boolean> {
  const marked = await tx.exec(
    tx.dialect.build
      .updateTable('agent_token')
      .set({ used_at: tx.now })
      .where('id', '=', id)
      .where('revoked_at', 'is', null),
  );
  return marked === 1;
}

export async function activeRunCounts(reader: Reader): Promise<{ agent_id: string; count: number }[]> {
  return reader.fetch(sql<{ agent_id: string; count: number }>`
    select agent_id, count(*) as count from run where lease_until is not null group by agent_id`);
}

/** Everybody that a person has told to take nothing new. */
export const allDrains = hot<Record<string, never>, AgentDrainTable>(
  'agent.drains',
  () => sql`select * from agent_drain order by agent_id`,
);

export const drainOf = hot<{ agent: string }, AgentDrainTable>(
  'agent.drain_of',
  (_d, p) => sql`select * from agent_drain where agent_id = ${p.agent}`,
);

export async function saveDrain(tx: Tx, row: AgentDrainTable): Promise<void> {
  const { agent_id: _id, ...changes } = row;
  await tx.exec(
    tx.dialect.build
      .insertInto('agent_drain')
      .values(row)
      .onConflict((conflict) => conflict.column('agent_id').doUpdateSet(changes)),
  );
}

export async function dropDrain(tx: Tx, agentId: string): Promise<void> {
  await tx.exec(tx.dialect.build.deleteFrom('agent_drain').where('agent_id', '=', agentId));
}
