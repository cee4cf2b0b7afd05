import type { Clock } from '../clock.ts';
import type { Log } from '../log.ts';
import { Poller, type Service } from '../service.ts';
import type { Store } from '../store/store.ts';
import type { TaskLine } from '../tasks/claim.ts';
import { dueInBands } from '../tasks/controls-queries.ts';
import { holdCause } from '../tasks/explain-holds.ts';
import type { Hold } from '../tasks/gates.ts';
import type { Band } from '../tasks/lineup.ts';
import type { Stream } from '../tasks/streams.ts';
import type { Dispatch } from './dispatch.ts';
import type { AgentRegistry } from './registry.ts';

export interface LaneWatchOptions {
  store: Store;
  clock: Clock;
  log: Log;
  line: Pick<TaskLine, 'waitingLanes' | 'bandsOfLane' | 'holdsOf' | 'correct'>;
  registry: Pick<AgentRegistry, 'list'>;
  dispatch: Pick<Dispatch, 'claimOf'>;
  /** A task that has waited for so long is worth a warning, milliseconds. */
  warnMs: number;
}

const LOOK_MS = 1_000;
/** At most one warning per lane in this time. */
const QUIET_MS = 60_000;
/** Looked at per lane: those that have waited longest. */
const MAX_BANDS = 200;
/** Counted per band. */
const MAX_DUE = 500;

/**
 * Tells in the log which lanes wait, `lane.waiting`: for how long, how many tasks, and why. What a person has paused is no news. Reads
 * memory once a second, and rows only where it is about to warn.
 */
export class LaneWatch implements Service {
  readonly #options: LaneWatchOptions;
  readonly #poller: Poller;
  readonly #warnedAt = new Map<string, number>();

  constructor(options: LaneWatchOptions) {
    this.#options = options;
    this.#poller = new Poller({
      runOnce: async () => {
        await this.lookOnce();
        return LOOK_MS;
      },
      onError: (error) => {
        options.log.error('lane.watch_failed', { error });
        return QUIET_MS;
      },
    });
  }

  start(): Promise<void> {
    return this.#poller.start();
  }

  stop(): Promise<void> {
    return this.#poller.stop();
  }

  /** Warns of the lanes that wait too long and were not warned of in the last minute. */
  async lookOnce(): Promise<void> {
    const { clock, line, warnMs } = this.#options;
    const now = clock.now();
    for (const [lane, since] of line.waitingLanes(now)) {
      const quietFor = Math.abs(now - (this.#warnedAt.get(lane) ?? Number.NEGATIVE_INFINITY));
      if (now - since >= warnMs && quietFor >= QUIET_MS) await this.#warn(lane, now);
    }
  }

  async #warn(lane: string, now: number): Promise<void> {
    const { store, line, log, warnMs } = this.#options;
    const waiting = await this.#waiting(line.bandsOfLane(lane, now).slice(0, MAX_BANDS), now);
    const facts = { all: store.all.bind(store), now };
    const holds = await line.holdsOf(
      facts,
      waiting.map(({ band }) => band.stream),
    );
    const told = waiting.filter(({ band }) => !holds.get(band.stream)!.some(({ type }) => type === 'paused'));
    const [first] = told;
    if (!first || now - first.headAt < warnMs) return;
    this.#warnedAt.set(lane, now);
    log.warn('lane.waiting', {
      lane,
      tasks: told.reduce((sum, { due }) => sum + due, 0),
      waitedMs: now - first.headAt,
      why: await this.#why(first.band.stream, holds.get(first.band.stream)!, now),
    });
  }

  /** What the rows say of these bands, the longest wait first; memory is put right on the way. */
  async #waiting(bands: readonly Band[], now: number): Promise<{ band: Band; headAt: number; due: number }[]> {
    const { store, line } = this.#options;
    const notes = bands.map((band) => band.notes);
    const rows = bands.map(({ stream, priority }, place) => [place, stream.id, priority]);
    const found = await store.all(dueInBands, { rows, now, limit: MAX_DUE });
    for (const { place, head_at } of found) line.correct(bands[place]!, head_at, now, notes[place]!);
    return found
      .flatMap(({ place, head_at, due }) => (due === 0 ? [] : [{ band: bands[place]!, headAt: head_at!, due }]))
      .sort((a, b) => a.headAt - b.headAt);
  }

  async #why({ queue }: Stream, [hold]: readonly Hold[], now: number): Promise<string> {
    if (hold) return holdCause(hold, now).cause.text.en;
    const { registry, dispatch } = this.#options;
    const takers = (await registry.list()).filter(
      (agent) => agent.online && dispatch.claimOf({ ...agent, instanceId: '' }, 1, null).queues.includes(queue),
    );
    if (takers.length === 0) return 'No agent that may take it is online.';
    return takers.every((agent) => agent.activeRuns >= agent.concurrency)
      ? 'Every agent that may take it is busy.'
      : 'An agent has room for it and does not ask for work.';
  }
}
