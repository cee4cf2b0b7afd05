import { availableParallelism, loadavg } from 'node:os';
import { Poller, type Service } from '../../service.ts';
import type { HeartbeatAnswer, HeartbeatRequest } from '../protocol.ts';
import type { GatewayClient } from './client.ts';
import { pauseAfter, type RetryOptions } from './retry.ts';
import type { RunTable } from './run-table.ts';

export interface HeartbeatLoopOptions {
  client: GatewayClient;
  caller: string;
  runs: RunTable;
  retry: RetryOptions;
  /** At least this often a heartbeat is sent, milliseconds. */
  heartbeatMs(): number;
  /** Whether this instance is registered and takes work; else nothing is sent and the gateway sees it go offline. */
  isHealthy(): boolean;
}

/** A held answer plus its way must fit into the interval. */
const WAIT_SHARE = 0.8;
const MAX_WAIT_MS = 60_000;
/** An answer that says nothing new but comes early is not followed by the next heartbeat at once. */
const EARLY_PAUSE_MS = 1_000;
/** Unless runs have come since it was sent: then the reason may be one of those, which the gateway could not name. */
const CHANGED_PAUSE_MS = 20;

type ActiveRun = HeartbeatRequest['activeRuns'][number];

/** Says which runs live and hears at once which are to end: the gateway holds each answer until it has something to say. */
export class HeartbeatLoop implements Service {
  readonly #options: HeartbeatLoopOptions;
  readonly #poller: Poller;
  readonly #startedAt = performance.now();

  constructor(options: HeartbeatLoopOptions) {
    this.#options = options;
    this.#poller = new Poller({
      runOnce: (signal) => this.#runOnce(signal),
      onError: (error, failures) => pauseAfter(options.retry, 'heartbeat', error, failures),
    });
  }

  start(): Promise<void> {
    return this.#poller.start();
  }

  stop(): Promise<void> {
    return this.#poller.stop();
  }

  wake(): void {
    this.#poller.wake();
  }

  async #runOnce(signal: AbortSignal): Promise<number> {
    const heartbeatMs = this.#options.heartbeatMs();
    if (!this.#options.isHealthy()) {
      this.#options.retry.log.debug('heartbeat.withheld');
      return heartbeatMs;
    }
    const waitMs = Math.min(Math.floor(heartbeatMs * WAIT_SHARE), MAX_WAIT_MS);
    const sentAt = performance.now();
    const activeRuns = this.#options.runs.active();
    const answer = await this.#beat(activeRuns, waitMs, signal);
    const isNews = this.#obey(answer);
    const isEarly = performance.now() - sentAt < waitMs / 2;
    if (isNews || !isEarly) return 0;
    return Math.min(this.#hasChanged(activeRuns) ? CHANGED_PAUSE_MS : EARLY_PAUSE_MS, heartbeatMs);
  }

  #hasChanged(told: readonly ActiveRun[]): boolean {
    const active = this.#options.runs.active();
    return active.length !== told.length || active.some((run, index) => run.runId !== told[index]!.runId);
  }

  #beat(activeRuns: ActiveRun[], waitMs: number, signal: AbortSignal): Promise<HeartbeatAnswer> {
    const { client, caller } = this.#options;
    const rest = JSON.stringify({
      uptimeMs: Math.round(performance.now() - this.#startedAt),
      load: loadavg()[0]! / availableParallelism(),
      activeRuns,
      waitMs,
    });
    return client.post<HeartbeatAnswer>('/api/agent/heartbeat', `{${caller},${rest.slice(1)}`, { waitMs, signal });
  }

  /** Answers whether there was anything new. */
  #obey(answer: HeartbeatAnswer): boolean {
    let isNews = false;
    for (const { runId, action } of answer.runs ?? []) {
      if (action === 'cancel' || action === 'lost') isNews = this.#options.runs.stop(runId, action) || isNews;
    }
    return isNews;
  }
}
