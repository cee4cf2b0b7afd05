import { AppError } from '../errors.ts';
import { audit } from '../sessions/audit.ts';
import type { Store } from '../store/store.ts';
import type { Reader } from '../store/tx.ts';
import { diagnosticsOfAgent, insertDiagnostic, pruneDiagnostics } from './queries.ts';

/** So many bundles are kept of one agent. */
export const KEPT_DIAGNOSTICS = 20;
/** An agent that posts more often than this is refused, milliseconds. */
export const DIAGNOSTICS_PAUSE_MS = 10_000;

/** What an agent has found to be wrong with itself, and what it saw then. */
export interface Diagnostic {
  readonly at: number;
  readonly failed: string[];
  readonly bundle: unknown;
}

/**
 * Keeps a bundle and writes the event down, in one transaction.
 * @param agentId the authenticated agent
 * @throws AppError rate_limited where its last one is too fresh
 */
export async function keepDiagnostic(
  store: Store,
  agentId: string,
  { failed, bundle }: { failed: readonly string[]; bundle: unknown },
): Promise<void> {
  await store.transact('health.diagnostic', async (tx) => {
    const [last] = await tx.all(diagnosticsOfAgent, { agent: agentId, limit: 1 });
    const ageMs = last ? tx.now - last.at : DIAGNOSTICS_PAUSE_MS;
    // A clock that was set back must not shut an agent out.
    if (ageMs >= 0 && ageMs < DIAGNOSTICS_PAUSE_MS)
      throw new AppError('rate_limited', `agent ${agentId} has posted diagnostics a moment ago`);
    const texts = { failed: JSON.stringify(failed), bundle: JSON.stringify(bundle) };
    await tx.run(insertDiagnostic, { id: await tx.ids(1), agent: agentId, now: tx.now, ...texts });
    await tx.run(pruneDiagnostics, { agent: agentId, keep: KEPT_DIAGNOSTICS });
    await audit(tx, { actor: `agent:${agentId}`, action: 'agent.diagnostics', target: agentId, data: { failed } });
  });
}

/** The newest first. */
export async function diagnosticsOf(reader: Reader, agentId: string): Promise<Diagnostic[]> {
  const rows = await reader.all(diagnosticsOfAgent, { agent: agentId, limit: KEPT_DIAGNOSTICS });
  return rows.map(({ at, failed, bundle }) => ({
    at,
    failed: JSON.parse(failed) as string[],
    bundle: JSON.parse(bundle),
  }));
}
