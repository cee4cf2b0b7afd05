import type { Log } from '../log.ts';
import { audit } from '../sessions/audit.ts';
import type { Tx } from '../store/tx.ts';
import { agentById, drainOf, dropDrain, saveDrain } from './queries.ts';
import { drainFrom, type Roster } from './roster.ts';
import type { AgentDrain } from './standing.ts';

export interface DrainOrder {
  readonly agentId: string;
  readonly on: boolean;
  /** The actor of the audit entry. */
  readonly by: string;
  readonly why: string | null;
}

export interface DrainPlaces {
  readonly roster: Roster;
  readonly log: Log;
}

/**
 * Tells an agent to finish what it runs and take nothing new, or lets it go on; from the commit on, and across restarts of both sides.
 * A repeated order changes nothing and writes nothing; a new reason is written. Answers what holds then, undefined where nobody of
 * that id has ever registered.
 */
export async function changeDrain(
  tx: Tx,
  order: DrainOrder,
  { roster, log }: DrainPlaces,
): Promise<{ drain: AgentDrain | null } | undefined> {
  const { agentId, on, by, why } = order;
  if ((await tx.all(agentById, { id: agentId })).length === 0) return undefined;
  const [row] = await tx.all(drainOf, { agent: agentId });
  const before = row ? drainFrom(row) : null;
  const isSame = on ? before !== null && (why === null || why === before.why) : before === null;
  if (isSame) return { drain: before };
  const drain = on ? { at: before?.at ?? tx.now, by, why } : null;
  if (drain) await saveDrain(tx, { agent_id: agentId, ...drain });
  else await dropDrain(tx, agentId);
  const action = on ? 'agent.draining' : 'agent.resumed';
  const facts = before && !on ? { drainedAt: before.at, drainedBy: before.by } : {};
  await audit(tx, { actor: by, action, target: agentId, data: { ...facts, ...(why === null ? {} : { why }) } });
  tx.afterCommit(() => {
    const standing = roster.get(agentId)?.standing;
    if (standing) standing.drain = drain;
    roster.changed();
    log.warn(action, { agentId, by });
  });
  return { drain };
}
