import type { Clock } from '../clock.ts';
import type { Log } from '../log.ts';
import { Poller, type Service } from '../service.ts';
import type { Store } from '../store/store.ts';
import { type RunActivity, runActivity } from './queries.ts';

export interface QuietRunsOptions {
  store: Store;
  clock: Clock;
  log: Log;
  /** How long a run of this template may say nothing, milliseconds; null: for ever. */
  quietAfterMs(template: string): number | null;
}

const LOOK_MS = 5_000;
const RETRY_MS = 10_000;
/** A question that got no answer is asked again after this, or after the template's own time where that is shorter. */
const ASK_AGAIN_MS = 60_000;

/**
 * Runs that have said nothing for too long: their agents are asked for a sign of life with the next heartbeat. What they answer is an
 * event of the run and counts as a word, so the next question comes after another such silence. Nothing of this is stored: after a
 * restart the rows tell who is quiet.
 */
export class QuietRuns implements Service {
  readonly #options: QuietRunsOptions;
  readonly #poller: Poller;
  /** To be asked; by run. */
  readonly #due = new Set<number>();
  /** When each was asked last, of those that are still quiet. */
  #asked = new Map<number, number>();

  constructor(options: QuietRunsOptions) {
    this.#options = options;
    this.#poller = new Poller({
      runOnce: async () => {
        await this.lookOnce();
        return LOOK_MS;
      },
      onError: (error) => {
        options.log.error('quiet.look_failed', { error });
        return RETRY_MS;
      },
    });
  }

  start(): Promise<void> {
    return this.#poller.start();
  }

  stop(): Promise<void> {
    return this.#poller.stop();
  }

  /** Whether to ask for a sign of life of this run now; true once. */
  take(runId: number): boolean {
    return this.#due.size > 0 && this.#due.delete(runId);
  }

  async lookOnce(): Promise<void> {
    const { store, clock, log } = this.#options;
    const runs = await store.all(runActivity, {});
    const now = clock.now();
    const asked = new Map<number, number>();
    this.#due.clear();
    for (const run of runs) {
      const limitMs = this.#options.quietAfterMs(run.template);
      if (limitMs === null || silenceMs(run, now) < limitMs) continue;
      const before = this.#asked.get(run.run_id);
      const isFresh = before !== undefined && before <= now && now - before < Math.min(limitMs, ASK_AGAIN_MS);
      asked.set(run.run_id, isFresh ? before : now);
      if (isFresh) continue;
      this.#due.add(run.run_id);
      log.info('run.quiet', {
        runId: store.ids.encode(run.run_id),
        agentId: run.agent_id,
        silentMs: silenceMs(run, now),
      });
    }
    this.#asked = asked;
  }
}

/** By the server's clock, which alone has stamped both. */
function silenceMs({ started_at, said_at }: RunActivity, now: number): number {
  return now - Math.max(started_at, said_at ?? 0);
}
