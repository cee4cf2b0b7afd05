import { execFile, execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { HAS_PROC, hasVariable, isLive, parseStat, type RunMark, readStat, strayProcesses } from './process-table.ts';

export { currentBootId } from '../../boot.ts';

/**
 * Process groups: what a run's program and everything it started belong to. The group's id is the process id of its leader.
 * Linux reads /proc; macOS asks `ps`; on Windows (untested) a tree is ended through `taskkill`.
 */
const FIRST_POLL_MS = 10;
const LAST_POLL_MS = 200;
/** How long the kernel may take to end a group after SIGKILL before we stop waiting for it. */
const KILL_WAIT_MS = 2_000;

/**
 * When a process began, in whatever unit the system uses (only good for comparing); undefined where there is no such process.
 * Synchronous, because it is asked right after a spawn, before anything else may happen.
 */
export function processStartedAt(pid: number): string | undefined {
  try {
    if (HAS_PROC) return parseStat(readFileSync(`/proc/${pid}/stat`, 'utf8')).startedAt;
    return (
      execFileSync('ps', ['-o', 'lstart=', '-p', String(pid)], { encoding: 'utf8', stdio: 'pipe' }).trim() || undefined
    );
  } catch {
    return undefined;
  }
}

/** Whether anything of the group still runs. Zombies do not count: nobody can end them but their parent. */
export async function groupAlive(pgid: number): Promise<boolean> {
  if (!canSignal(pgid)) return false;
  return HAS_PROC ? (await groupMembers(pgid)).length > 0 : true;
}

/**
 * Whether the group is the one we started: its leader began when we noted it, or (the leader being gone) a member carries our run's
 * id in its environment. A number that was given to somebody else since is not ours.
 */
export async function groupIsOurs(pgid: number, startedAt: string | undefined, runId: string): Promise<boolean> {
  const leader = processStartedAt(pgid);
  if (leader !== undefined) return leader === startedAt;
  if (!HAS_PROC) return false;
  for (const pid of await groupMembers(pgid)) if (await hasVariable(pid, `ERRAND_RUN_ID=${runId}`)) return true;
  return false;
}

/** Sends the signal to every process of the group; a group that is gone is no error. */
function signalGroup(pgid: number, signal: NodeJS.Signals): void {
  if (process.platform === 'win32') {
    execFile('taskkill', ['/pid', String(pgid), '/T', ...(signal === 'SIGKILL' ? ['/F'] : [])], () => undefined);
    return;
  }
  try {
    process.kill(-pgid, signal);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ESRCH' && code !== 'EPERM') throw error;
  }
}

/** SIGTERM, up to `graceMs` for an orderly end, then SIGKILL. Answers when the group is gone (or cannot be ended at all). */
export async function endGroup(pgid: number, graceMs: number, hurry?: AbortSignal): Promise<void> {
  signalGroup(pgid, 'SIGTERM');
  if (await groupGone(pgid, graceMs, hurry)) return;
  await killGroup(pgid);
}

/**
 * Kills what a run has started and what has left its group since (`setsid`, a daemon), as far as it can be found; everything in the
 * group is expected to be gone. Answers how many there were, and how many could not be ended.
 */
export async function killStrays(run: RunMark): Promise<{ found: number; left: number }> {
  const found = new Set<number>();
  const deadline = performance.now() + KILL_WAIT_MS;
  // More than once: what is being killed may be starting others.
  for (;;) {
    const strays = await strayProcesses(run);
    if (strays.length === 0 || performance.now() >= deadline) return { found: found.size, left: strays.length };
    for (const pid of strays) {
      found.add(pid);
      killProcess(pid);
    }
    await delay(FIRST_POLL_MS);
  }
}

/** SIGKILL; answers when the group is gone or the kernel takes too long. */
export async function killGroup(pgid: number): Promise<void> {
  signalGroup(pgid, 'SIGKILL');
  await groupGone(pgid, KILL_WAIT_MS);
}

function killProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // Gone already, or not ours to end: the next look tells.
  }
}

async function groupGone(pgid: number, limitMs: number, hurry?: AbortSignal): Promise<boolean> {
  const deadline = performance.now() + limitMs;
  let pauseMs = FIRST_POLL_MS;
  while (await groupAlive(pgid)) {
    if (performance.now() >= deadline || hurry?.aborted) return false;
    await delay(pauseMs);
    pauseMs = Math.min(pauseMs * 1.5, LAST_POLL_MS);
  }
  return true;
}

function canSignal(pgid: number): boolean {
  try {
    process.kill(process.platform === 'win32' ? pgid : -pgid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

async function groupMembers(pgid: number): Promise<number[]> {
  const members: number[] = [];
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const stat = await readStat(Number(name));
    if (stat && stat.pgid === pgid && isLive(stat)) members.push(Number(name));
  }
  return members;
}
