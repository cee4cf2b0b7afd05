import type { Log } from '../../log.ts';
import { endGroup, groupAlive, groupIsOurs } from './process-group.ts';
import type { StartedGroup } from './run-journal.ts';

/** Programs whose agent is gone get this long to end by themselves; the agent cannot register before. */
const ORPHAN_GRACE_MS = 2_000;

/**
 * Ends what an earlier instance left running (trap 2), all at once. Groups of another boot, and numbers that belong to somebody else
 * by now, are left alone. Answers when they are gone.
 */
export async function endOrphans(groups: readonly StartedGroup[], bootId: string, log: Log): Promise<void> {
  await Promise.all(groups.filter((group) => group.bootId === bootId).map((group) => endOrphan(group, log)));
}

async function endOrphan(group: StartedGroup, log: Log): Promise<void> {
  if (!(await groupAlive(group.pgid))) return;
  if (!(await groupIsOurs(group.pgid, group.startedAt, group.runId))) return;
  log.warn('agent.orphan_ended', { runId: group.runId, pgid: group.pgid });
  await endGroup(group.pgid, ORPHAN_GRACE_MS);
}
