import { execFile, execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';

/**
 * Process groups: what a run's program and everything it started belong to. The group's id is the process id of its leader.
 * Linux reads /proc; macOS asks `ps`; on Windows (untested) a tree is ended through `taskkill`.
 */
const run = promisify(execFile);
const HAS_PROC = process.platform === 'linux' && existsSync('/proc/self/stat');
const FIRST_POLL_MS = 10;
const LAST_POLL_MS = 200;
/** How long the kernel may take to end a group after SIGKILL before we stop waiting for it. */
const KILL_WAIT_MS = 2_000;

/** Names this boot of the machine; process ids mean nothing on another one. At most 64 characters. */
export async function currentBootId(): Promise<string> {
  if (HAS_PROC) return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
  const answer = await run('sysctl', ['-n', 'kern.boottime']).catch(() => undefined);
  const seconds = answer && /sec = (\d+)/.exec(answer.stdout)?.[1];
  return seconds ? `boot-${seconds}` : 'unknown';
}

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
  for (const pid of await groupMembers(pgid)) {
    const environment = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '');
    if (environment.split('\0').includes(`ERRAND_RUN_ID=${runId}`)) return true;
  }
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

/** SIGKILL; answers when the group is gone or the kernel takes too long. */
export async function killGroup(pgid: number): Promise<void> {
  signalGroup(pgid, 'SIGKILL');
  await groupGone(pgid, KILL_WAIT_MS);
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
    if (stat && stat.pgid === pgid && stat.state !== 'Z' && stat.state !== 'X') members.push(Number(name));
  }
  return members;
}

interface ProcessStat {
  state: string;
  pgid: number;
  startedAt: string;
}

async function readStat(pid: number): Promise<ProcessStat | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  return text === undefined ? undefined : parseStat(text);
}

/** proc_pid_stat(5): the name in parentheses may hold anything, so fields are counted after its last parenthesis. */
function parseStat(text: string): ProcessStat {
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return { state: fields[0] ?? '', pgid: Number(fields[2]), startedAt: fields[19] ?? '' };
}
