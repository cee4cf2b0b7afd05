import { join } from 'node:path';
import type { Log } from '../../log.ts';
import { endGroup, groupAlive, groupIsOurs, killStrays } from './process-group.ts';
import type { StartedGroup } from './run-journal.ts';
import { runVariable } from './runtime/run-folder.ts';

/** Programs whose agent is gone get this long to end by themselves; the agent cannot register before. */
const ORPHAN_GRACE_MS = 2_000;

/**
 * Ends what an earlier instance left running (trap 2), all at once. Groups of another boot, and numbers that belong to somebody else
 * by now, are left alone. Answers when they are gone.
 * @param workDir the agent's; absent: what has left its group is not looked for
 */
export async function endOrphans(
  groups: readonly StartedGroup[],
  bootId: string,
  log: Log,
  workDir?: string,
): Promise<void> {
  const ours = groups.filter((group) => group.bootId === bootId);
  await Promise.all(ours.map((group) => endOrphan(group, log)));
  if (workDir !== undefined) for (const group of ours) await endStrays(group, workDir, log);
}

/** What had left its group. */
async function endStrays({ runId, pgid }: StartedGroup, workDir: string, log: Log): Promise<void> {
  if (!/^[a-z0-9]+$/i.test(runId)) return;
  const { found, left } = await killStrays({ pgid, variable: runVariable(join(workDir, runId)), ranLong: true });
  if (found > 0) log.warn('agent.strays_ended', { runId, found, left });
}

async function endOrphan(group: StartedGroup, log: Log): Promise<void> {
  if (!(await groupAlive(group.pgid))) return;
  if (!(await groupIsOurs(group.pgid, group.startedAt, group.runId))) return;
  log.warn('agent.orphan_ended', { runId: group.runId, pgid: group.pgid });
  await endGroup(group.pgid, ORPHAN_GRACE_MS);
}
