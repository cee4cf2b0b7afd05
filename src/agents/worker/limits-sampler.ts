import type { Log } from '../../log.ts';
import { type Exceeded, LimitTracker, type RunLimits, type Usage } from './limits.ts';
import { ownShareBytes, type ProcessStat, readProcesses, treeOf } from './process-table.ts';

export interface SamplerOptions {
  log: Log;
  /** Between two looks, milliseconds; default 2,000. */
  sampleMs?: number;
  /** How long a run may be over its limit of memory or cores, milliseconds; default 30,000. */
  overMs?: number;
}

export interface WatchedRun {
  runId: string;
  pgid: number;
  limits: RunLimits;
  /** Something for the readers of the run's log; once for each resource. */
  warn(text: string): void;
  /** The run is to be ended; called once. */
  exceeded(limit: Exceeded): void;
}

/** One watched run, until it is over. */
export interface Watch {
  /** The most memory that was seen, bytes; 0 where the run ended before the first look. */
  readonly peakBytes: number;
  /** Whether another run was watched at any moment of this one. */
  readonly hadCompany: boolean;
  stop(): void;
}

const SAMPLE_MS = 2_000;
const OVER_MS = 30_000;
/** Near a limit, memory that processes share is counted once; further away that is not worth its cost. */
const EXACT_FROM = 0.8;

/** Looks at the processes of all runs of this agent together, every two seconds while there is any. */
export class LimitSampler {
  readonly #options: SamplerOptions;
  readonly #runs = new Set<Sampled>();
  #timer: NodeJS.Timeout | undefined;
  #isLooking = false;

  constructor(options: SamplerOptions) {
    this.#options = options;
  }

  watch(run: WatchedRun): Watch {
    const { overMs = OVER_MS } = this.#options;
    const sampled = new Sampled(run, new LimitTracker(run.limits, { overMs }), this.#runs.size > 0);
    for (const other of this.#runs) other.hadCompany = true;
    this.#runs.add(sampled);
    this.#timer ??= setInterval(() => void this.#look(), this.#options.sampleMs ?? SAMPLE_MS);
    return {
      get peakBytes() {
        return sampled.tracker.peakBytes;
      },
      get hadCompany() {
        return sampled.hadCompany;
      },
      stop: () => this.#leave(sampled),
    };
  }

  #leave(sampled: Sampled): void {
    this.#runs.delete(sampled);
    if (this.#runs.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  async #look(): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    try {
      const processes = await readProcesses();
      const at = performance.now();
      for (const sampled of this.#runs) await this.#lookAt(sampled, processes, at);
    } catch (error) {
      this.#options.log.warn('limits.look_failed', { error });
    } finally {
      this.#isLooking = false;
    }
  }

  async #lookAt(sampled: Sampled, processes: readonly ProcessStat[], at: number): Promise<void> {
    const { run, tracker } = sampled;
    const usage = await sampled.usageOf(treeOf(run.pgid, processes));
    if (!this.#runs.has(sampled) || sampled.isOver) return;
    const { warnings, exceeded } = tracker.observe(usage, at);
    for (const text of warnings) {
      this.#options.log.warn('run.near_limit', { runId: run.runId, text });
      run.warn(text);
    }
    if (!exceeded) return;
    sampled.isOver = true;
    this.#options.log.warn('run.limit_exceeded', { runId: run.runId, text: exceeded.text });
    run.exceeded(exceeded);
  }
}

class Sampled {
  readonly run: WatchedRun;
  readonly tracker: LimitTracker;
  hadCompany: boolean;
  isOver = false;
  #cpuMs = 0;

  constructor(run: WatchedRun, tracker: LimitTracker, hadCompany: boolean) {
    this.run = run;
    this.tracker = tracker;
    this.hadCompany = hadCompany;
  }

  async usageOf(members: readonly ProcessStat[]): Promise<Usage> {
    const cpuMs = members.reduce((sum, { cpuMs }) => sum + cpuMs, 0);
    // A process that nobody waited for takes its time along.
    this.#cpuMs = Math.max(this.#cpuMs, cpuMs);
    const rssBytes = members.reduce((sum, { rssBytes }) => sum + rssBytes, 0);
    const limit = this.run.limits.memoryBytes;
    const isExact = members.length < 2 || limit === undefined || rssBytes < EXACT_FROM * limit;
    return { cpuMs: this.#cpuMs, memoryBytes: isExact ? rssBytes : await sharedOnce(members) };
  }
}

async function sharedOnce(members: readonly ProcessStat[]): Promise<number> {
  const shares = await Promise.all(members.map(async ({ pid, rssBytes }) => (await ownShareBytes(pid)) ?? rssBytes));
  return shares.reduce((sum, share) => sum + share, 0);
}
