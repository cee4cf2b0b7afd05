import { setImmediate as nextTurn } from 'node:timers/promises';
import { Poller, type Service } from '../../service.ts';
import type { PullAnswer } from '../protocol.ts';
import type { GatewayClient } from './client.ts';
import { PollPhase } from './poll-phase.ts';
import { pauseAfter, type RetryOptions } from './retry.ts';
import type { RunTable } from './run-table.ts';

export interface PullLoopOptions {
  client: GatewayClient;
  caller: string;
  runs: RunTable;
  retry: RetryOptions;
  /** How long the gateway may hold a pull, milliseconds. */
  waitMs: number;
  /** Registers this instance where it is not (any more). @throws CallFailed */
  ensureRegistered(signal: AbortSignal): Promise<void>;
}

/** Without a free slot there is nothing to ask for; whoever frees one wakes the loop. */
const IDLE_MS = 10_000;
/** An answer without tasks that comes sooner than asked is not followed by the next question at once. */
const EARLY_PAUSE_MS = 250;
/** On top of a round's longest wait: after this the loop counts as stuck. */
const STUCK_MS = 120_000;

/** Asks for work whenever a slot is free that no other request asks for. It also registers, since nothing else works before. */
export class PullLoop implements Service {
  readonly #options: PullLoopOptions;
  readonly #poller: Poller;
  readonly #phase = new PollPhase();
  #turnedAt = performance.now();

  constructor(options: PullLoopOptions) {
    this.#options = options;
    this.#poller = new Poller({
      runOnce: (signal) => this.#runOnce(signal),
      onError: (error, failures) => {
        this.#phase.failed();
        return pauseAfter(options.retry, 'pull', error, failures);
      },
    });
  }

  start(): Promise<void> {
    return this.#poller.start();
  }

  stop(): Promise<void> {
    return this.#poller.stop();
  }

  /** A slot may be free, or a registration is needed. */
  wake(): void {
    this.#poller.wake();
  }

  /** Whether the loop still turns. An agent that hears heartbeats but takes no work must not look healthy. */
  isAlive(): boolean {
    return performance.now() - this.#turnedAt < this.#options.waitMs + STUCK_MS;
  }

  async #runOnce(signal: AbortSignal): Promise<number> {
    this.#turnedAt = performance.now();
    await this.#options.ensureRegistered(signal);
    // Results that are about to be sent ask for the next tasks in the same request; they go first.
    await nextTurn();
    const slots = this.#options.runs.reserve();
    if (slots === 0) return IDLE_MS;
    const askedAt = performance.now();
    const waitMs = this.#phase.holdMs(this.#options.waitMs);
    let count: number;
    try {
      count = await this.#pull(slots, waitMs, signal);
    } finally {
      this.#options.runs.release(slots);
    }
    this.#phase.answered();
    const isEarly = performance.now() - askedAt < Math.min(EARLY_PAUSE_MS, waitMs);
    return count === 0 && isEarly ? EARLY_PAUSE_MS : 0;
  }

  async #pull(slots: number, waitMs: number, signal: AbortSignal): Promise<number> {
    const { client, caller, runs } = this.#options;
    const rest = JSON.stringify({ maxTasks: slots, waitMs, holding: runs.holding() });
    const answer = await client.post<PullAnswer>('/api/agent/pull', `{${caller},${rest.slice(1)}`, { waitMs, signal });
    const tasks = answer.tasks ?? [];
    runs.accept(tasks);
    return tasks.length;
  }
}
