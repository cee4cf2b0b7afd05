import type { HeartbeatAnswer, HeartbeatRequest } from '../protocol.ts';

/** A run and the token of its lease. */
export type LeasedRun = HeartbeatRequest['activeRuns'][number];

/** What the agent's own loop says. */
export type ToKeeper =
  | { type: 'taken'; runs: readonly LeasedRun[]; settled: readonly string[]; leaseMs: number }
  /** A heartbeat was answered: these are all runs. */
  | { type: 'renewed'; runs: readonly LeasedRun[]; leaseMs: number }
  /** The agent holds its heartbeat back (it takes no work any more, or is not registered): its leases are to run out. */
  | { type: 'withheld' }
  /** The answer to `ping`. */
  | { type: 'alive' };

/** What it is told. */
export type FromKeeper =
  | { type: 'ping' }
  | { type: 'told'; runs: HeartbeatAnswer['runs'] }
  /** A newer instance has registered. */
  | { type: 'replaced' };

export interface LeaseKeeperOptions {
  /** One heartbeat that is not held. @throws what the call failed with */
  beat(runs: readonly LeasedRun[]): Promise<HeartbeatAnswer['runs']>;
  isReplaced(error: unknown): boolean;
  tell(message: FromKeeper): void;
  /** Monotonic milliseconds. */
  now(): number;
  /** How long leases are renewed for a loop that has said nothing, milliseconds. */
  silenceMs: number;
}

/** A lease that was not renewed for this share of its time is renewed from here; the agent's own heartbeats come sooner. */
const LATE_SHARE = 1 / 3;

/**
 * Renews leases in place of an agent's loop that is too busy to do it. As long as the loop's own heartbeats come through this sends
 * nothing. After `silenceMs` without a word of the loop it counts as dead, and its leases run out, so that others get its tasks.
 * Pure but for what it is given: the thread around it is lease-thread.ts.
 */
export class LeaseKeeper {
  readonly #options: LeaseKeeperOptions;
  readonly #runs = new Map<string, LeasedRun>();
  /** Of these the loop has been told and has not answered yet. */
  readonly #told = new Set<string>();
  #leaseMs = Number.POSITIVE_INFINITY;
  #renewedAt: number;
  #heardAt: number;
  #isWithheld = false;
  #isAsked = false;
  #isOver = false;
  #isBeating = false;

  constructor(options: LeaseKeeperOptions) {
    this.#options = options;
    this.#renewedAt = options.now();
    this.#heardAt = options.now();
  }

  hear(message: ToKeeper): void {
    const now = this.#options.now();
    this.#heardAt = now;
    this.#isAsked = false;
    this.#told.clear();
    if (message.type === 'withheld') this.#isWithheld = true;
    else if (message.type !== 'alive') this.#know(message, now);
  }

  /** To be called several times in a third of a lease. Never throws. */
  async look(): Promise<void> {
    const now = this.#options.now();
    const isLate = now - this.#renewedAt >= this.#leaseMs * LATE_SHARE;
    if (!isLate || this.#runs.size === 0 || this.#isOver || this.#isWithheld || this.#isBeating) return;
    if (!this.#isAsked) this.#options.tell({ type: 'ping' });
    this.#isAsked = true;
    if (now - this.#heardAt >= this.#options.silenceMs) return;
    this.#isBeating = true;
    try {
      await this.#beat(now);
    } finally {
      this.#isBeating = false;
    }
  }

  #know(message: Extract<ToKeeper, { runs: unknown }>, now: number): void {
    this.#leaseMs = message.leaseMs;
    if (message.type === 'renewed') {
      this.#runs.clear();
      this.#isWithheld = false;
      this.#renewedAt = now;
    } else {
      for (const runId of message.settled) this.#runs.delete(runId);
      // A lease is as old as its run; that of an earlier one is older.
      if (this.#runs.size === 0) this.#renewedAt = now;
    }
    for (const run of message.runs) this.#runs.set(run.runId, run);
  }

  async #beat(now: number): Promise<void> {
    let runs: HeartbeatAnswer['runs'];
    try {
      runs = await this.#options.beat([...this.#runs.values()]);
    } catch (error) {
      this.#isOver = this.#options.isReplaced(error);
      if (this.#isOver) this.#options.tell({ type: 'replaced' });
      // Anything else the agent's own calls meet as well, and tell; here it is tried again with the next look.
      return;
    }
    this.#renewedAt = Math.max(this.#renewedAt, now);
    const isNews = ({ runId, action, probe }: (typeof runs)[number]) =>
      (action !== 'continue' || probe === true) && !this.#told.has(`${runId} ${action}`);
    const news = runs.filter(isNews);
    for (const { runId, action } of news) this.#told.add(`${runId} ${action}`);
    if (news.length > 0) this.#options.tell({ type: 'told', runs: news });
  }
}
