import { backoffMs } from '../backoff.ts';
import type { Clock } from '../clock.ts';
import { sweepDeadlines } from '../flows/stop.ts';
import type { Log } from '../log.ts';
import { Poller, type Service } from '../service.ts';
import type { Store } from '../store/store.ts';
import { sweepBreakers } from '../tasks/breaker-watch.ts';
import type { Breakers } from '../tasks/breakers.ts';
import type { TaskLine } from '../tasks/claim.ts';
import { SetBack } from '../tasks/set-back.ts';
import { graceForAll, sweep } from '../tasks/sweep.ts';
import type { Emit, TaskEvent } from '../tasks/task.ts';
import type { Dispatch } from './dispatch.ts';
import type { AgentGateway } from './gateway.ts';
import type { AgentRegistry } from './registry.ts';

export interface SweeperOptions {
  store: Store;
  clock: Clock;
  log: Log;
  emit: Emit<TaskEvent>;
  registry: AgentRegistry;
  dispatch: Dispatch;
  /** Absent: no progress waits. */
  gateway?: Pick<AgentGateway, 'flushProgress'>;
  /** Absent: no template has one. */
  breakers?: Breakers;
  /** Absent: nothing is limited or paused. */
  line?: Pick<TaskLine, 'holdsOf'>;
  leaseMs: number;
  cancelGraceMs: number;
  /** Monotonic milliseconds; injectable for tests. */
  monotonic?: () => number;
}

const SWEEP_MS = 1_000;
const RETRY = { baseMs: 500, factor: 2, capMs: 10_000, jitter: 0.2 };

/**
 * Does what time alone decides, at least once a second. Nothing expires before the agents have had one lease time to speak: after a
 * start, after a pause of this process or an outage of the database, and after a jump of the clock.
 */
export class Sweeper implements Service {
  readonly #options: SweeperOptions;
  readonly #poller: Poller;
  readonly #monotonic: () => number;
  #last: { clock: number; monotonic: number } | undefined;
  #agentsSpeakSince = 0;
  readonly #setBack: SetBack;

  constructor(options: SweeperOptions) {
    this.#options = options;
    this.#setBack = new SetBack(options.emit);
    this.#monotonic = options.monotonic ?? (() => performance.now());
    this.#poller = new Poller({
      runOnce: async () => {
        await this.sweepOnce();
        return SWEEP_MS;
      },
      onError: (error, failures) => {
        options.log.error('sweep.failed', { error });
        return backoffMs(RETRY, failures);
      },
    });
  }

  async start(): Promise<void> {
    await this.sweepOnce();
    await this.#poller.start();
  }

  stop(): Promise<void> {
    return this.#poller.stop();
  }

  async sweepOnce(): Promise<void> {
    const { store, log, emit, leaseMs, cancelGraceMs, registry, dispatch, breakers, line } = this.#options;
    const time = await store.transact('sweep', async (tx) => {
      // The clocks are read with the transaction: a jump right before or after it must not go unseen.
      const now = { clock: tx.now, monotonic: this.#monotonic() };
      const interrupted = this.#interrupted(now);
      if (interrupted) {
        this.#agentsSpeakSince = tx.now;
        const runs = await graceForAll(tx, leaseMs);
        if (runs > 0) tx.afterCommit(() => log.warn('lease.grace', { reason: interrupted, runs }));
        await this.#setBack.begin(tx);
      }
      const pulled = await this.#setBack.step(tx);
      const counts = await sweep(tx, { cancelGraceMs, agentsSpeakSince: this.#agentsSpeakSince, line }, emit);
      if (breakers) await sweepBreakers(tx, breakers, emit);
      const stopped = await sweepDeadlines(tx, emit);
      await this.#options.gateway?.flushProgress(tx);
      const gone = await registry.flush(tx);
      await dispatch.serveDue(tx);
      tx.afterCommit(() => {
        if (Object.values(counts).some((count) => count > 0)) log.warn('sweep.ended', { ...counts });
        if (pulled > 0) log.warn('task.clock_set_back', { tasks: pulled });
        if (stopped > 0) log.warn('sweep.deadlines', { flows: stopped });
        for (const agentId of gone) log.warn('agent.offline', { agentId });
      });
      return now;
    });
    this.#last = time;
  }

  /** Why agents may have been unable to speak since the last completed sweep; undefined in the normal case. */
  #interrupted(now: { clock: number; monotonic: number }): string | undefined {
    if (!this.#last) return 'started';
    const wall = now.clock - this.#last.clock;
    const real = now.monotonic - this.#last.monotonic;
    const tolerance = this.#options.leaseMs / 3;
    if (real > tolerance + SWEEP_MS) return 'paused';
    return Math.abs(wall - real) > tolerance ? 'clock_jump' : undefined;
  }
}
