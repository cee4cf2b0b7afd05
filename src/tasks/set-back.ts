import type { Tx } from '../store/tx.ts';
import { headRef, headsOf } from './cancel.ts';
import {
  cancelsFromAhead,
  deadlinesFromAhead,
  type LinePlace,
  pausedAhead,
  pullForward,
  queuedAfter,
} from './set-back-queries.ts';
import type { Emit, TaskEvent } from './task.ts';

/** So many places of the line are looked at in one transaction. */
const SLICE = 5_000;
const START: LinePlace = { stream: -1, priority: -1, run_at: -1, id: -1 };

/**
 * What a clock that was set back must not make wait for as long as it was wrong: tasks that were to start at once, after the pause
 * before a retry, or after that of a rate limit. `begin` where the clock may have been set back, then `step` with every sweep: it looks
 * through the line in slices and answers how many tasks it has pulled forward. Costs nothing once it is through.
 */
export class SetBack {
  readonly #emit: Emit<TaskEvent>;
  #line: LinePlace | undefined;
  #pausedAfter: number | undefined;

  constructor(emit: Emit<TaskEvent>) {
    this.#emit = emit;
  }

  /** Everything is looked at (again), from the next step on; what runs, at once. */
  async begin(tx: Tx): Promise<void> {
    this.#line = START;
    this.#pausedAfter = -1;
    await tx.run(cancelsFromAhead, { now: tx.now });
    await tx.run(deadlinesFromAhead, { now: tx.now });
  }

  async step(tx: Tx): Promise<number> {
    return (await this.#lineStep(tx)) + (await this.#pausedStep(tx));
  }

  async #lineStep(tx: Tx): Promise<number> {
    const after = this.#line;
    if (after === undefined) return 0;
    const places = await tx.all(queuedAfter, { ...after, limit: SLICE });
    const next = places.length < SLICE ? undefined : places.at(-1);
    tx.afterCommit(() => {
      if (this.#line === after) this.#line = next;
    });
    const pulled = await this.#pull(
      tx,
      places.filter(({ run_at }) => run_at > tx.now),
    );
    const heads = [...(await headsOf(tx, pulled)).values()];
    this.#emit(
      tx,
      heads.map((head) => ({
        type: 'task.queued',
        streamId: head.stream_id,
        priority: head.priority,
        runAt: head.run_at,
        ...headRef(head),
      })),
    );
    return pulled.length;
  }

  async #pausedStep(tx: Tx): Promise<number> {
    const after = this.#pausedAfter;
    if (after === undefined) return 0;
    const paused = await tx.all(pausedAhead, { now: tx.now, after, limit: SLICE });
    const next = paused.length < SLICE ? undefined : paused.at(-1)!.id;
    tx.afterCommit(() => {
      if (this.#pausedAfter === after) this.#pausedAfter = next;
    });
    return (await this.#pull(tx, paused)).length;
  }

  async #pull(tx: Tx, tasks: readonly { id: number }[]): Promise<{ id: number }[]> {
    return tasks.length === 0 ? [] : tx.all(pullForward, { rows: tasks.map(({ id }) => [id]), now: tx.now });
  }
}
