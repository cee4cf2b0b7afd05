import { Poller, type Service } from '../../service.ts';
import type { HeartbeatAnswer, HeartbeatRequest, ReleaseOffer } from '../protocol.ts';
import type { GatewayClient } from './client.ts';
import { sendHeartbeat } from './heartbeat-call.ts';
import type { LeaseGuard } from './lease-guard.ts';
import { PollPhase } from './poll-phase.ts';
import { pauseAfter, type RetryOptions } from './retry.ts';
import type { RunTable } from './run-table.ts';

export interface HeartbeatLoopOptions {
  client: GatewayClient;
  caller: string;
  runs: RunTable;
  retry: RetryOptions;
  /** Is told of every heartbeat that was answered, or withheld. Absent: nobody is. */
  leases?: Pick<LeaseGuard, 'renewed' | 'withheld'>;
  /** At least this often a heartbeat is sent, milliseconds. */
  heartbeatMs(): number;
  /** Whether this instance is registered and takes work; else nothing is sent and the gateway sees it go offline. */
  isHealthy(): boolean;
  /** The gateway wants a sign of life of this run. */
  onProbe?(runId: string): void;
  /** Further fields of the heartbeat. */
  extras?(): Pick<HeartbeatRequest, 'version' | 'deadReports' | 'upgrade'>;
  /** The package that the gateway names, with every answer. */
  onRelease?(release: ReleaseOffer): void;
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
  readonly #phase = new PollPhase();
  readonly #startedAt = performance.now();

  constructor(options: HeartbeatLoopOptions) {
    this.#options = options;
    this.#poller = new Poller({
      runOnce: (signal) => this.#runOnce(signal),
      onError: (error, failures) => {
        this.#phase.failed();
        return pauseAfter(options.retry, 'heartbeat', error, failures);
      },
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

  /**
   * The last word of an agent that ends in order: what the gateway granted and this instance never got goes back at once. One try.
   * @throws CallFailed, or the reason of the signal
   */
  async farewell(limitMs: number): Promise<void> {
    const { client, caller, runs } = this.#options;
    const signal = AbortSignal.timeout(limitMs);
    const activeRuns = runs.active();
    await sendHeartbeat(client, { caller, uptimeMs: this.#uptimeMs(), activeRuns, stopping: true, signal });
  }

  /** Does what the gateway wants of runs; answers whether there was anything new. */
  obey(told: HeartbeatAnswer['runs']): boolean {
    let isNews = false;
    for (const { runId, action, probe } of told) {
      if (probe) this.#options.onProbe?.(runId);
      if (action === 'cancel' || action === 'lost') isNews = this.#options.runs.stop(runId, action) || isNews;
    }
    return isNews;
  }

  async #runOnce(signal: AbortSignal): Promise<number> {
    const heartbeatMs = this.#options.heartbeatMs();
    if (!this.#options.isHealthy()) {
      this.#options.retry.log.debug('heartbeat.withheld');
      this.#options.leases?.withheld();
      return heartbeatMs;
    }
    const waitMs = this.#phase.holdMs(Math.min(Math.floor(heartbeatMs * WAIT_SHARE), MAX_WAIT_MS));
    const sentAt = performance.now();
    const activeRuns = this.#options.runs.active();
    const answer = await this.#beat(activeRuns, waitMs, signal);
    this.#phase.answered();
    this.#options.leases?.renewed();
    if (answer.release) this.#options.onRelease?.(answer.release);
    const isNews = this.obey(answer.runs ?? []);
    const isEarly = performance.now() - sentAt < waitMs / 2;
    if (isNews || !isEarly) return 0;
    return Math.min(this.#hasChanged(activeRuns) ? CHANGED_PAUSE_MS : EARLY_PAUSE_MS, heartbeatMs);
  }

  #hasChanged(told: readonly ActiveRun[]): boolean {
    const active = this.#options.runs.active();
    return active.length !== told.length || active.some((run, index) => run.runId !== told[index]!.runId);
  }

  #beat(activeRuns: ActiveRun[], waitMs: number, signal: AbortSignal): Promise<HeartbeatAnswer> {
    const { client, caller, extras } = this.#options;
    return sendHeartbeat(client, { caller, uptimeMs: this.#uptimeMs(), activeRuns, waitMs, ...extras?.(), signal });
  }

  #uptimeMs(): number {
    return Math.round(performance.now() - this.#startedAt);
  }
}
