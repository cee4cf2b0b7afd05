import { readdir, readFile, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import type { SelfCheckName } from '../health-protocol.ts';
import { isLive, type ProcessStat, readChildren } from './process-table.ts';

/** From where on a check fails. */
export interface HealthLimits {
  /** Share of the open files that this process may have. */
  descriptorShare: number;
  /** The longest that the event loop was late since the last check, milliseconds. */
  lagMs: number;
  /** Of the spool folder. */
  spoolBytes: number;
  /** At least so much must be free where the spool and the runs are. */
  freeBytes: number;
  /** Children of this process that have ended and are not collected, or hang in the kernel, or belong to no run, for two checks. */
  stuckChildren: number;
}

/** What was measured; absent where the system does not say. */
export interface HealthMeasures {
  descriptors?: number;
  descriptorLimit?: number;
  lagMs: number;
  spoolBytes: number;
  freeBytes?: number;
  stuckChildren: number;
}

const LIMITS: HealthLimits = {
  descriptorShare: 0.8,
  lagMs: 5_000,
  spoolBytes: 256 * 1024 * 1024,
  freeBytes: 256 * 1024 * 1024,
  stuckChildren: 1,
};

const LAG_RESOLUTION_MS = 500;
/** So many files of the spool folder are added up. */
const MAX_FILES = 10_000;

/** Looks at this process and its machine. */
export class HealthProbe {
  readonly limits: HealthLimits;
  readonly #spoolDir: string;
  readonly #workDir: string;
  #lag: IntervalHistogram | undefined;
  /** Children that looked stuck at the last check, by number and begin. */
  #suspects = new Set<string>();

  constructor(options: { spoolDir: string; workDir: string; limits?: Partial<HealthLimits> }) {
    this.limits = { ...LIMITS, ...options.limits };
    this.#spoolDir = options.spoolDir;
    this.#workDir = options.workDir;
  }

  start(): void {
    this.#lag ??= monitorEventLoopDelay({ resolution: LAG_RESOLUTION_MS });
    this.#lag.enable();
  }

  stop(): void {
    this.#lag?.disable();
  }

  /** @param groups process groups of the runs that are under way */
  async measure(groups: readonly number[]): Promise<HealthMeasures> {
    const lagMs = this.#lag ? Math.round(Math.max(0, this.#lag.max / 1e6 - LAG_RESOLUTION_MS)) : 0;
    this.#lag?.reset();
    return {
      ...(await descriptors()),
      lagMs,
      spoolBytes: await folderBytes(this.#spoolDir),
      ...(await freeSpace([this.#spoolDir, this.#workDir])),
      stuckChildren: this.#stuck(await readChildren(), new Set(groups)),
    };
  }

  failed({
    descriptors,
    descriptorLimit,
    lagMs,
    spoolBytes,
    freeBytes,
    stuckChildren,
  }: HealthMeasures): SelfCheckName[] {
    const { limits } = this;
    const isShort = descriptors !== undefined && descriptors >= limits.descriptorShare * (descriptorLimit ?? Infinity);
    const failures: [SelfCheckName, boolean][] = [
      ['descriptors', isShort],
      ['event_loop', lagMs >= limits.lagMs],
      ['spool', spoolBytes >= limits.spoolBytes],
      ['disk', freeBytes !== undefined && freeBytes < limits.freeBytes],
      ['children', stuckChildren >= limits.stuckChildren],
    ];
    return failures.filter(([, isFailed]) => isFailed).map(([name]) => name);
  }

  #stuck(children: readonly ProcessStat[], groups: ReadonlySet<number>): number {
    const suspects = children.filter((one) => !isLive(one) || one.state === 'D' || isForgotten(one, groups));
    const names = suspects.map(({ pid, startedAt }) => `${pid}@${startedAt}`);
    const stuck = names.filter((name) => this.#suspects.has(name)).length;
    this.#suspects = new Set(names);
    return stuck;
  }
}

/** Leads a group of its own, as programs of runs do, and no run knows it. */
function isForgotten({ pid, pgid }: ProcessStat, groups: ReadonlySet<number>): boolean {
  return pgid === pid && !groups.has(pgid);
}

async function descriptors(): Promise<Pick<HealthMeasures, 'descriptors' | 'descriptorLimit'>> {
  const open = await readdir('/proc/self/fd').catch(() => undefined);
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const limit = Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1]);
  if (!open) return {};
  return { descriptors: open.length, ...(Number.isFinite(limit) ? { descriptorLimit: limit } : {}) };
}

async function folderBytes(folder: string): Promise<number> {
  const names = await readdir(folder, { recursive: true }).catch(() => []);
  let bytes = 0;
  for (const name of names.slice(0, MAX_FILES))
    bytes += (await stat(join(folder, name)).catch(() => undefined))?.size ?? 0;
  return bytes;
}

/** The least of these folders' disks. */
async function freeSpace(folders: readonly string[]): Promise<Pick<HealthMeasures, 'freeBytes'>> {
  const disks = await Promise.all(folders.map((folder) => statfs(folder).catch(() => undefined)));
  const free = disks.flatMap((disk) => (disk ? [disk.bavail * disk.bsize] : []));
  return free.length === 0 ? {} : { freeBytes: Math.min(...free) };
}
