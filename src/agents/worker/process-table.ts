import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

/** Whether this system tells about its processes in /proc. */
export const HAS_PROC = process.platform === 'linux' && existsSync('/proc/self/stat');

/** One process at one moment. */
export interface ProcessStat {
  pid: number;
  /** Of its parent. */
  ppid: number;
  pgid: number;
  /** One letter; `Z` is a zombie, which holds nothing any more. */
  state: string;
  /** When it began, in whatever unit the system uses: only good for comparing. */
  startedAt: string;
  /** Resident memory, bytes; memory that several processes share is counted in each. */
  rssBytes: number;
  /** Processor time of it and of its children that have ended and were waited for, milliseconds. */
  cpuMs: number;
}

/** How everything that a run has started is recognised. */
export interface RunMark {
  /** Its process group; also the process id of its program. */
  pgid: number;
  /** A variable `NAME=value` that its programs have in their environment and nothing else on this machine has. */
  variable: string;
  /** Whether it ran so long that process ids may have come round since. */
  ranLong: boolean;
}

const run = promisify(execFile);
/** The kernel's unit of times in /proc is fixed at 100 a second for programs, whatever it uses itself. */
const TICK_MS = 10;

/** Of memory, as /proc counts it. */
const pageBytes = HAS_PROC ? readPageBytes() : 4_096;

/**
 * All living processes. On Linux from /proc; on macOS from `ps`; on Windows nothing (untested there: limits of memory and processor
 * time are not watched).
 */
export async function readProcesses(): Promise<ProcessStat[]> {
  if (!HAS_PROC) return process.platform === 'win32' ? [] : fromPs();
  const names = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const stats = await Promise.all(names.map((name) => readStat(Number(name))));
  return stats.filter((stat) => stat !== undefined);
}

/** The processes that this one has started itself. On Linux without looking at all the others, where the kernel can tell. */
export async function readChildren(): Promise<ProcessStat[]> {
  const pids = HAS_PROC ? await childPids() : undefined;
  if (!pids) return (await readProcesses()).filter(({ ppid }) => ppid === process.pid);
  const stats = await Promise.all(pids.map(readStat));
  return stats.filter((stat) => stat !== undefined).filter(({ ppid }) => ppid === process.pid);
}

/** One process, or undefined where there is none of this number. Linux only. */
export async function readStat(pid: number): Promise<ProcessStat | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  return text === undefined ? undefined : parseStat(text);
}

/** proc_pid_stat(5): the name in parentheses may hold anything, so fields are counted after its last parenthesis. */
export function parseStat(text: string): ProcessStat {
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const ticks = [11, 12, 13, 14].reduce((sum, index) => sum + Number(fields[index] ?? 0), 0);
  return {
    pid: Number.parseInt(text, 10),
    ppid: Number(fields[1]),
    pgid: Number(fields[2]),
    state: fields[0] ?? '',
    startedAt: fields[19] ?? '',
    rssBytes: Number(fields[21] ?? 0) * pageBytes,
    cpuMs: ticks * TICK_MS,
  };
}

/** Whether it still runs: nobody can end a zombie but its parent. */
export function isLive({ state }: Pick<ProcessStat, 'state'>): boolean {
  return state !== 'Z' && state !== 'X';
}

/** Who of these belongs to the run: its group, and every descendant of a member wherever it has gone. */
export function treeOf(pgid: number, processes: readonly ProcessStat[]): ProcessStat[] {
  const children = groupByParent(processes);
  const members = new Map<number, ProcessStat>();
  const open = processes.filter((one) => one.pgid === pgid || one.pid === pgid);
  for (let next = open.pop(); next; next = open.pop()) {
    if (members.has(next.pid)) continue;
    members.set(next.pid, next);
    open.push(...(children.get(next.pid) ?? []));
  }
  return [...members.values()].filter(isLive);
}

/**
 * Living processes outside of the group that have the run's variable in their environment: they have left it (`setsid`) and outlived
 * whoever started them. Linux only, and only those that our user may look into; elsewhere none are found.
 */
export async function strayProcesses(mark: RunMark): Promise<number[]> {
  if (!HAS_PROC) return [];
  const pids = await laterPids(mark);
  const stats = await Promise.all(pids.map(readStat));
  const outside = stats.filter((one) => one !== undefined).filter((one) => one.pgid !== mark.pgid && isLive(one));
  return (await havingVariable(mark.variable, outside)).map(({ pid }) => pid);
}

/** Those of these processes that have the variable; see `hasVariable`. */
export async function havingVariable(variable: string, processes: readonly ProcessStat[]): Promise<ProcessStat[]> {
  const marked = await Promise.all(processes.map(({ pid }) => hasVariable(pid, variable)));
  return processes.filter((_, index) => marked[index]);
}

/** Whether the process has this variable, `NAME=value`, in the environment it was started with. */
export async function hasVariable(pid: number, variable: string): Promise<boolean> {
  const environment = await readFile(`/proc/${pid}/environ`).catch(() => NOTHING);
  const wanted = Buffer.from(`${variable}\0`);
  return environment.indexOf(wanted) === 0 || environment.includes(Buffer.concat([ZERO, wanted]));
}

/** Memory of a process without what others share with it, bytes; undefined where the system does not say. */
export async function ownShareBytes(pid: number): Promise<number | undefined> {
  const text = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8').catch(() => '');
  const kib = /^Pss:\s+(\d+) kB$/m.exec(text)?.[1];
  return kib === undefined ? undefined : Number(kib) * 1024;
}

const NOTHING = Buffer.alloc(0);
const ZERO = Buffer.alloc(1);

/** Processes that were started after this run's program: mostly a handful, so that looking for strays costs a short run nothing. */
async function laterPids({ pgid, ranLong }: RunMark): Promise<number[]> {
  const last = Number((await readFile('/proc/loadavg', 'utf8').catch(() => '')).trim().split(' ').at(-1));
  if (last === pgid && !ranLong) return [];
  const pids = (await readdir('/proc')).flatMap((name) => (/^\d+$/.test(name) ? [Number(name)] : []));
  const others = pids.filter((pid) => pid !== process.pid && pid !== pgid);
  if (ranLong || !Number.isInteger(last)) return others;
  // Numbers that have come round begin anew from below.
  return others.filter((pid) => (last >= pgid ? pid > pgid && pid <= last : pid > pgid || pid <= last));
}

/** proc_pid_children(5), which every thread has of its own; undefined on kernels without it. */
async function childPids(): Promise<number[] | undefined> {
  const threads = await readdir('/proc/self/task').catch(() => []);
  const lists = await Promise.all(
    threads.map((thread) => readFile(`/proc/self/task/${thread}/children`, 'utf8').catch(() => undefined)),
  );
  const known = lists.filter((list) => list !== undefined);
  if (known.length === 0) return undefined;
  return known.flatMap((list) => list.split(' ').flatMap((pid) => (pid.trim() === '' ? [] : [Number(pid)])));
}

/** From the kernel's word about our own memory; it is 16 or 64 KiB on some machines. */
function readPageBytes(): number {
  try {
    const text = readFileSync('/proc/self/smaps', 'utf8');
    return Number(/^KernelPageSize:\s+(\d+) kB$/m.exec(text)?.[1] ?? 4) * 1_024;
  } catch {
    return 4_096;
  }
}

function groupByParent(processes: readonly ProcessStat[]): Map<number, ProcessStat[]> {
  const byParent = new Map<number, ProcessStat[]>();
  for (const one of processes) {
    const siblings = byParent.get(one.ppid);
    if (siblings) siblings.push(one);
    else byParent.set(one.ppid, [one]);
  }
  return byParent;
}

async function fromPs(): Promise<ProcessStat[]> {
  const answer = await run('ps', ['-A', '-o', 'pid=,ppid=,pgid=,state=,rss=,time=,lstart=']).catch(() => undefined);
  return (answer?.stdout ?? '').split('\n').flatMap((line) => parsePsLine(line) ?? []);
}

/** One line of `ps -o pid=,ppid=,pgid=,state=,rss=,time=,lstart=`; undefined for anything else. */
export function parsePsLine(line: string): ProcessStat | undefined {
  const match =
    /^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S)\S*\s+(\d+)\s+(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)\s+(.*?)\s*$/.exec(line);
  if (!match) return undefined;
  const [, pid, ppid, pgid, state, rssKib, days, hours, minutes, seconds, startedAt] = match;
  const total = Number(days ?? 0) * 86_400 + Number(hours ?? 0) * 3_600 + Number(minutes) * 60 + Number(seconds);
  return {
    ...{ pid: Number(pid), ppid: Number(ppid), pgid: Number(pgid) },
    ...{ state: state!, startedAt: startedAt!, rssBytes: Number(rssKib) * 1024, cpuMs: Math.round(total * 1_000) },
  };
}
