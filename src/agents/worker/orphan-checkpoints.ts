import { join } from 'node:path';
import type { Clock } from '../../clock.ts';
import type { Log } from '../../log.ts';
import { type Report, TERMINAL_REPORTS } from '../protocol.ts';
import { maskingOf } from './masking.ts';
import { type Outgoing, outgoing } from './outgoing.ts';
import { maskBody } from './run.ts';
import type { StartedGroup } from './run-journal.ts';
import { CHECKPOINT_OUT, readProgramFile } from './runtime/run-folder.ts';
import { readCheckpoint } from './runtime/saved-checkpoint.ts';

/** Above the numbers of all reports of a run whose agent was killed: how many there were is not known any more. */
const LAST_SEQ = 2_000_000_000;

export interface OrphanOptions {
  /** Where the folders of runs are. */
  workDir: string;
  /** Unsent reports of earlier instances. */
  leftovers: readonly Outgoing[];
  secrets: ReadonlyMap<string, string>;
  clock: Clock;
  log: Log;
}

/**
 * What programs saved that their agent had no time to read before it was killed, as reports of their runs. To be called when these
 * programs are over, and before their folders go. A file that is no checkpoint is left out and logged.
 */
export async function orphanCheckpoints(groups: readonly StartedGroup[], options: OrphanOptions): Promise<Outgoing[]> {
  const ended = new Set(options.leftovers.filter(({ type }) => TERMINAL_REPORTS.has(type)).map(({ runId }) => runId));
  const found: Outgoing[] = [];
  for (const group of groups) {
    if (ended.has(group.runId)) continue;
    const report = await lastReport(group, options);
    if (report) found.push(outgoing(report));
  }
  return found;
}

async function lastReport(
  { runId, leaseToken }: StartedGroup,
  { workDir, secrets, clock, log }: OrphanOptions,
): Promise<Report | undefined> {
  if (leaseToken === undefined || !/^[a-z0-9]+$/i.test(runId)) return undefined;
  const bytes = await readProgramFile(join(workDir, runId, CHECKPOINT_OUT)).catch(() => undefined);
  if (!bytes || bytes.length === 0) return undefined;
  const masking = maskingOf(secrets.values());
  const read = readCheckpoint(bytes, masking);
  if (typeof read === 'string') {
    log.warn('agent.orphan_checkpoint_left', { runId, reason: read });
    return undefined;
  }
  log.info('agent.orphan_checkpoint', { runId });
  const body = maskBody({ type: 'checkpoint', data: read.data }, masking);
  return { runId, leaseToken, seq: LAST_SEQ, at: clock.now(), ...body } as Report;
}
