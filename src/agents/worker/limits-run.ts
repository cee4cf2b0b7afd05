import { totalmem } from 'node:os';
import { type Exceeded, mib, type RunLimits } from './limits.ts';
import type { OomCount, OomKills } from './limits-oom.ts';
import type { LimitSampler, Watch, WatchedRun } from './limits-sampler.ts';

/** How a program ended, as far as it matters here. */
export interface ExitFacts {
  exitCode: number | null;
  signal: string | null;
  /** Whether the agent ended it. */
  endedByUs: boolean;
}

/** What is to be told of a program's want of something, beside its exit. */
export interface Shortage {
  /** The limit for which the agent ended it. */
  exceeded?: Exceeded;
  /** What speaks for a kill by the kernel for want of memory; one sentence. */
  outOfMemory?: string;
  /** Something for the log, where it cannot be said of whom it is true. */
  remark?: string;
}

export interface RunMeterOptions {
  sampler: LimitSampler;
  oomKills: OomKills;
}

/** `kill -9` of a child, as shells pass it on. */
const EXIT_OF_SIGKILL = 137;
const NEAR = 0.9;

/** Watches one run against its limits from its start to its end, and knows afterwards what it was short of. */
export class RunMeter {
  readonly #oomKills: OomKills;
  readonly #limits: RunLimits;
  readonly #watch: Watch;
  readonly #killsBefore: OomCount | undefined;
  #exceeded: Exceeded | undefined;

  /** @param killsBefore read before the program was started */
  constructor(options: RunMeterOptions, killsBefore: OomCount | undefined, run: WatchedRun) {
    this.#oomKills = options.oomKills;
    this.#limits = run.limits;
    this.#killsBefore = killsBefore;
    this.#watch = options.sampler.watch({
      ...run,
      exceeded: (limit) => {
        this.#exceeded = limit;
        run.exceeded(limit);
      },
    });
  }

  /** The program is over. */
  async finish(exit: ExitFacts): Promise<Shortage> {
    this.#watch.stop();
    if (this.#exceeded) return { exceeded: this.#exceeded };
    if (exit.endedByUs) return {};
    const after = await this.#oomKills.count();
    const isKernelAtIt =
      this.#killsBefore !== undefined && after !== undefined && after.kills > this.#killsBefore.kills;
    return this.#judge(exit, isKernelAtIt, after?.isOwn === true && !this.#watch.hadCompany);
  }

  /** @param isAlone what is counted can only have been of this run */
  #judge({ exitCode, signal }: ExitFacts, isKernelAtIt: boolean, isAlone: boolean): Shortage {
    const peak = this.#watch.peakBytes;
    const seen = peak > 0 ? `, ${mib(peak)} at the last peak seen` : '';
    const wasKilled = signal === 'SIGKILL' || exitCode === EXIT_OF_SIGKILL;
    if (isKernelAtIt && (wasKilled || isAlone)) {
      const whom = wasKilled ? 'it' : 'a part of it';
      return { outOfMemory: `the kernel killed ${whom} for want of memory${seen}` };
    }
    if (isKernelAtIt) return { remark: 'the kernel killed a process on this machine for want of memory meanwhile' };
    // A code is the program's own word; a signal that nobody here has sent is not.
    if (signal !== 'SIGKILL' || peak < NEAR * this.#ceiling()) return {};
    return { outOfMemory: `killed by SIGKILL, which the agent did not send, with memory nearly used up${seen}` };
  }

  #ceiling(): number {
    return Math.min(this.#limits.memoryBytes ?? Number.POSITIVE_INFINITY, totalmem());
  }
}
