import { sql } from 'kysely';
import type { JoinTokenTable } from '../store/agent-tables.ts';
import { hot } from '../store/dialect.ts';
import type { Reader, Tx } from '../store/tx.ts';

export const joinTokenByHash = hot<{ hash: string }, JoinTokenTable>(
  'join_token.by_hash',
  (_d, p) => sql`select * from join_token where token_hash = ${p.hash}`,
);

export async function insertJoinToken(tx: Tx, row: JoinTokenTable): Promise<void> {
  await tx.exec(tx.dialect.build.insertInto('join_token').values(row));
}

/** Those that expired before this are of no use to anybody: not even to say what became of them. */
export async function deleteOldJoinTokens(tx: Tx, before: number): Promise<void> {
  await tx.exec(tx.dialect.build.deleteFrom('join_token').where('expires_at', '<', before));
}

/** Those for this agent that nobody has used; answers how many. */
export async function deleteUnusedJoinTokens(tx: Tx, agentId: string): Promise<number> {
  return tx.exec(
    tx.dialect.build.deleteFrom('join_token').where('agent_id', '=', agentId).where('used_at', 'is', null),
  );
}

/** Uses it up. False: somebody else was faster. */
export async function useJoinToken(
  tx: Tx,
  id: number,
  use: { machineHash: string | null; agentId: string; agentTokenId: number },
): Promise<boolean> {
  const used = await tx.exec(
    tx.dialect.build
      .updateTable('join_token')
      .set({
        used_at: tx.now,
        machine_hash: use.machineHash,
        joined_agent_id: use.agentId,
        agent_token_id: use.agentTokenId,
      })
      .where('id', '=', id)
      .where('used_at', 'is', null),
  );
  return used === 1;
}

/** The join is repeated: it leads to another credential. */
export async function renewJoin(tx: Tx, id: number, agentTokenId: number): Promise<void> {
  await tx.exec(tx.dialect.build.updateTable('join_token').set({ agent_token_id: agentTokenId }).where('id', '=', id));
}

/** Ends a credential that nobody has ever presented. False: it was presented, or ended. */
export async function endUnusedToken(tx: Tx, id: number): Promise<boolean> {
  const ended = await tx.exec(
    tx.dialect.build
      .updateTable('agent_token')
      .set({ revoked_at: tx.now })
      .where('id', '=', id)
      .where('used_at', 'is', null)
      .where('revoked_at', 'is', null),
  );
  return ended === 1;
}

/** Whether there is, or ever was, an agent of this name. */
export async function isAgentKnown(reader: Reader, agentId: string): Promise<boolean> {
  const build = reader.dialect.build;
  const known = await reader.fetch(
    build
      .selectFrom('agent_token')
      .select('agent_id')
      .where('agent_id', '=', agentId)
      .union(build.selectFrom('agent').select('agent_id').where('agent_id', '=', agentId)),
  );
  return known.length > 0;
}
