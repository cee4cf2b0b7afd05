import { Worker } from 'node:worker_threads';
import type { Log } from '../../log.ts';
import type { HeartbeatAnswer } from '../protocol.ts';
import type { ClientOptions } from './client.ts';
import type { FromKeeper, LeasedRun, ToKeeper } from './lease-keeper.ts';
import type { LeaseThreadData } from './lease-thread.ts';

export interface LeaseGuardOptions {
  client: ClientOptions;
  caller: string;
  log: Log;
  /** All runs whose lease is to be renewed. */
  active(): readonly LeasedRun[];
  /** What the gateway wants of runs, as it was told to the thread. */
  obey(runs: HeartbeatAnswer['runs']): void;
  onReplaced(): void;
}

/** An agent whose loop has not turned for so long is not alive: its leases run out (docs/agents.md). */
const SILENCE_MS = 5 * 60_000;
/** A run that is over within this share of a lease needs no thread; starting one means loading its code anew. */
const SHORT_RUN_SHARE = 1 / 10;
/** After so many heartbeats without a run the thread ends: it takes about 30 MB. */
const IDLE_BEATS = 3;
/** It holds run ids, tokens and one connection. Megabytes. */
const MEMORY_MB = { maxOldGenerationSizeMb: 32, maxYoungGenerationSizeMb: 8 };

/**
 * The agent's side of the thread that keeps its leases: tells it which runs there are, at once when they are taken, since the very next
 * thing may block the loop. The thread starts when a run has lasted a moment and lives while there are runs, so that an agent that idles or
 * has but short tasks has none. Run from TypeScript there is none at all: Node loads no TypeScript into a thread.
 */
export class LeaseGuard {
  readonly #options: LeaseGuardOptions;
  readonly #startedAt = Date.now();
  #leaseMs = 30_000;
  #settled: string[] = [];
  #thread: Worker | undefined;
  #isStopped = false;
  #soon: NodeJS.Timeout | undefined;
  /** Heartbeats in a row that named no run. */
  #idleBeats = 0;

  constructor(options: LeaseGuardOptions) {
    this.#options = options;
  }

  /** As the gateway said when the agent registered, milliseconds. */
  set leaseMs(value: number) {
    this.#leaseMs = value;
  }

  /** To be called before any of these runs starts. */
  taken(runs: readonly LeasedRun[]): void {
    if (runs.length === 0 || this.#isStopped) return;
    if (!this.#thread) {
      this.#startLater(runs);
      return;
    }
    const settled = this.#settled;
    this.#settled = [];
    this.#say({ type: 'taken', runs: runs.map(leaseOf), settled, leaseMs: this.#leaseMs });
  }

  /** Told with the next word: a lease that is over is renewed in vain until then. */
  settled(runId: string): void {
    if (this.#thread) this.#settled.push(runId);
  }

  /** A heartbeat was answered. */
  renewed(): void {
    const thread = this.#thread;
    if (!thread) return;
    this.#settled = [];
    const runs = this.#options.active();
    this.#idleBeats = runs.length === 0 ? this.#idleBeats + 1 : 0;
    if (this.#idleBeats < IDLE_BEATS) this.#say({ type: 'renewed', runs, leaseMs: this.#leaseMs });
    else {
      this.#thread = undefined;
      void thread.terminate();
    }
  }

  /** The agent does not send its heartbeat. */
  withheld(): void {
    this.#say({ type: 'withheld' });
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#soon);
    const thread = this.#thread;
    this.#thread = undefined;
    await thread?.terminate();
  }

  /** When one of these runs is still there after a moment, or else one of those that are there then. */
  #startLater(runs: readonly LeasedRun[]): void {
    if (this.#soon || import.meta.url.endsWith('.ts')) return;
    const waiting = new Set(runs.map(({ runId }) => runId));
    this.#soon = setTimeout(() => {
      this.#soon = undefined;
      const active = this.#options.active();
      if (active.some(({ runId }) => waiting.has(runId))) this.#start();
      else if (active.length > 0) this.#startLater(active);
    }, this.#leaseMs * SHORT_RUN_SHARE).unref();
  }

  #start(): void {
    const { client, caller, log } = this.#options;
    const { gatewayUrl, token, ca, proxy } = client;
    const workerData: LeaseThreadData = {
      client: { gatewayUrl, token, ca, proxy },
      caller,
      leaseMs: this.#leaseMs,
      silenceMs: SILENCE_MS,
      startedAt: this.#startedAt,
    };
    const thread = new Worker(new URL('./lease-thread.js', import.meta.url), {
      name: 'leases',
      workerData,
      resourceLimits: MEMORY_MB,
      // None of the agent's environment: nothing in it is needed there.
      env: {},
    });
    this.#thread = thread;
    this.#idleBeats = 0;
    thread.unref();
    thread.on('message', (message: FromKeeper) => this.#hear(message));
    thread.on('error', (error) => log.error('lease_thread.failed', { error }));
    thread.on('exit', () => {
      // Begun anew with the next run.
      if (this.#thread === thread) this.#thread = undefined;
    });
    this.#settled = [];
    this.#say({ type: 'taken', runs: this.#options.active(), settled: [], leaseMs: this.#leaseMs });
  }

  #say(message: ToKeeper): void {
    this.#thread?.postMessage(message);
  }

  #hear(message: FromKeeper): void {
    if (this.#isStopped) return;
    if (message.type === 'replaced') this.#options.onReplaced();
    else if (message.type === 'told') this.#options.obey(message.runs);
    else this.#say({ type: 'alive' });
  }
}

const leaseOf = ({ runId, leaseToken }: LeasedRun): LeasedRun => ({ runId, leaseToken });
