import { readFile } from 'node:fs/promises';
import { type ProcessLine, type RunSnapshot, SNAPSHOT_LIMITS } from '../protocol.ts';
import { type ProcessStat, readProcesses, treeOf } from './process-table.ts';

/**
 * What the processes of a run do now: its group, and whatever a member of it has started. Without a group (its runtime starts no
 * program) the agent itself is shown: the run lives in it.
 */
export async function snapshotOf(pgid: number | undefined): Promise<RunSnapshot> {
  const all = await readProcesses();
  return linesOf(pgid === undefined ? all.filter(({ pid }) => pid === process.pid) : treeOf(pgid, all));
}

/** Processes as they may be shown: bounded, those that use most of the processor first. */
export async function linesOf(
  processes: readonly ProcessStat[],
  max: number = SNAPSHOT_LIMITS.processes,
): Promise<RunSnapshot> {
  const shown = [...processes].sort((a, b) => b.cpuMs - a.cpuMs || a.pid - b.pid).slice(0, max);
  const lines = await Promise.all(shown.map(lineOf));
  const omitted = processes.length - shown.length;
  return { processes: lines, ...(omitted > 0 ? { omitted } : {}) };
}

async function lineOf({ pid, state, cpuMs, rssBytes }: ProcessStat): Promise<ProcessLine> {
  return { pid, name: await nameOf(pid), state: state.slice(0, 1), cpuMs, rssBytes };
}

/** The name of the program, never its arguments: those may hold what a person typed. Any program can choose its name. */
async function nameOf(pid: number): Promise<string> {
  const text = await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => '');
  return text.replace(/[^\x20-\x7e]/g, '').slice(0, SNAPSHOT_LIMITS.name) || '?';
}
