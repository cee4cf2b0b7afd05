import type { Log } from '../../log.ts';
import type { Assignment } from '../protocol.ts';
import type { LeaseGuard } from './lease-guard.ts';
import { type Policy, refusalOf } from './policy.ts';
import { Run, type RunContext } from './run.ts';
import type { RunJournal } from './run-journal.ts';
import type { Runtime, StopReason } from './runtime/runtime.ts';

export interface RunTableOptions {
  concurrency: number;
  runtimes: ReadonlyMap<string, Runtime>;
  policy: Policy;
  journal: RunJournal;
  context: RunContext;
  log: Log;
  /** Is told of every run before it starts, and when it is settled. Absent: nobody is. */
  leases?: Pick<LeaseGuard, 'taken' | 'settled'>;
  /** A slot became free, and no report tells it. */
  onSlotFree(): void;
  /** Whether tasks may be asked for at all: not before an upgrade, and not while too many results wait for the gateway. */
  mayTake(): boolean;
}

/**
 * The runs of this agent, from acceptance until the gateway has answered their last report, and the slots they take. Whoever asks
 * the gateway for tasks reserves the slots first, so that two open requests never bring more than can run.
 */
export class RunTable {
  readonly #options: RunTableOptions;
  readonly #runs = new Map<string, Run>();
  /** Offered again after an earlier instance had started it: never started, but named as held, so that the offers end. */
  readonly #refusedRepeats = new Set<string>();
  readonly #waiting: Run[] = [];
  #running = 0;
  #reserved = 0;
  #isStopping = false;
  #onIdle: (() => void)[] = [];

  constructor(options: RunTableOptions) {
    this.#options = options;
  }

  /** Slots that are neither taken nor asked for, at most so many; from now on they count as asked for, until `release`. */
  reserve(most = Number.POSITIVE_INFINITY): number {
    const free = this.#options.concurrency - this.#running - this.#waiting.length - this.#reserved;
    const granted = this.#isStopping || !this.#options.mayTake() ? 0 : Math.min(most, Math.max(0, free));
    this.#reserved += granted;
    return granted;
  }

  /** Whether there is a slot that nobody has asked for. */
  get hasFree(): boolean {
    const taken = this.#running + this.#waiting.length + this.#reserved;
    return this.#options.concurrency > taken && !this.#isStopping && this.#options.mayTake();
  }

  release(slots: number): void {
    this.#reserved -= slots;
  }

  /** Takes what the gateway granted. What is here already, or was ever started here, is not started again. */
  accept(assignments: readonly Assignment[]): void {
    const fresh = assignments.filter((assignment) => this.#isFresh(assignment));
    this.#options.journal.taken(fresh.map((assignment) => assignment.runId));
    for (const assignment of fresh) {
      const run = new Run(assignment, this.#options.context);
      this.#runs.set(run.runId, run);
      this.#waiting.push(run);
    }
    this.#options.leases?.taken(fresh);
    if (this.#isStopping) this.#giveBackWaiting();
    else this.#startWaiting();
  }

  /** Run ids that the gateway need not offer again. */
  holding(): string[] {
    return [...this.#runs.keys(), ...this.#refusedRepeats].slice(-2048);
  }

  /** Runs whose lease is to be renewed: also ended ones, until their result has arrived. */
  active(): { runId: string; leaseToken: string }[] {
    return [...this.#runs.values()].slice(0, 1024).map(({ runId, leaseToken }) => ({ runId, leaseToken }));
  }

  /** Those that have begun and not ended. */
  started(): Run[] {
    return [...this.#runs.values()].filter((run) => !run.ended && !this.#waiting.includes(run));
  }

  get busy(): number {
    return this.#running + this.#waiting.length;
  }

  /** Answers whether that was news. A run that has not started ends at once. */
  stop(runId: string, reason: StopReason): boolean {
    const run = this.#runs.get(runId);
    if (!run || run.ended || run.stopping === reason || run.lost) return false;
    this.#options.log.info('run.stopping', { runId, reason });
    this.#stopRun(run, reason);
    return true;
  }

  /** The gateway has given its last answer about this run. */
  settled(runId: string): void {
    if (!this.#runs.get(runId)?.ended) return;
    this.#runs.delete(runId);
    this.#options.leases?.settled(runId);
  }

  /** Takes nothing new and ends everything for this reason; resolves when nothing runs any more. */
  async stopAll(reason: StopReason): Promise<void> {
    this.#isStopping = true;
    for (const run of [...this.#runs.values()]) if (!run.ended) this.#stopRun(run, reason);
    if (this.#running > 0) await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }

  #isFresh(assignment: Assignment): boolean {
    const { runId, leaseToken } = assignment ?? {};
    if (typeof runId !== 'string' || typeof leaseToken !== 'string') {
      this.#options.log.error('run.malformed', { runId: String(runId) });
      return false;
    }
    if (this.#runs.has(runId)) return false;
    if (!this.#options.journal.knows(runId)) return true;
    this.#options.log.warn('run.offered_again', { runId });
    this.#refusedRepeats.add(runId);
    if (this.#refusedRepeats.size > 512) this.#refusedRepeats.delete(this.#refusedRepeats.values().next().value!);
    return false;
  }

  #startWaiting(): void {
    while (this.#running < this.#options.concurrency && this.#waiting.length > 0) this.#start(this.#waiting.shift()!);
  }

  #start(run: Run): void {
    const runtime = this.#options.runtimes.get(run.assignment.runtime);
    const refusal = refusalOf(this.#options.policy, run.assignment);
    if (refusal !== undefined || !runtime) {
      this.#options.log.warn('run.refused', { runId: run.runId, template: run.assignment.template, refusal });
      run.finish({
        type: 'failed',
        errorClass: 'permanent',
        error: refusal ?? `there is no runtime '${run.assignment.runtime}'`,
      });
      return;
    }
    this.#running += 1;
    void run.execute(runtime).finally(() => this.#ended(run));
  }

  #ended(run: Run): void {
    this.#running -= 1;
    this.#options.journal.ended(run.runId);
    if (run.lost) {
      this.#runs.delete(run.runId);
      this.#options.onSlotFree();
    }
    if (!this.#isStopping) this.#startWaiting();
    if (this.#running === 0) for (const resolve of this.#onIdle.splice(0)) resolve();
  }

  #stopRun(run: Run, reason: StopReason): void {
    const at = this.#waiting.indexOf(run);
    run.stop(reason);
    if (at < 0) return;
    this.#waiting.splice(at, 1);
    run.finish({ type: reason === 'cancel' ? 'cancelled' : 'released' });
    if (run.lost) {
      this.#runs.delete(run.runId);
      this.#options.onSlotFree();
    }
  }

  #giveBackWaiting(): void {
    for (const run of this.#waiting.splice(0)) run.finish({ type: 'released' });
  }
}
