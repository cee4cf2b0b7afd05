import type { Store } from '../store/store.ts';
import type { Reader, Tx } from '../store/tx.ts';
import type { Archive } from './archive.ts';
import { removeStreams, streamRows, streamsAfter, streamsOfTasks } from './prune-streams-queries.ts';

/** Fewer are not worth a walk through the tasks. */
export const FEW_STREAMS = 500;
/** Streams of one pass; the next goes on behind them. */
const MOST_STREAMS = 100_000;
/** Tasks that are looked at before others have their turn. */
const SLICE = 5_000;
/** Bound of one transaction. */
const BATCH = 400;
/** Between two passes, milliseconds. */
export const STREAMS_PAUSE_MS = 6 * 3_600_000;

/** Which streams of a window no task has, as far as the tasks up to `seenTo` tell. */
interface Window {
  readonly unused: Set<number>;
  seenTo: number;
}

export interface StreamPruningOptions {
  readonly store: Pick<Store, 'all' | 'transact' | 'ids'>;
  readonly archive: Archive;
}

/**
 * Removes the streams (tasks/streams.ts) that no task has any more. A task never changes its stream, is younger than it, and ids are
 * given in the order of commits: so one walk through the tasks tells which streams are unused, and the transaction that removes them
 * has to look at the tasks that have come since alone. Who needs such a stream later gets a new row with a new id.
 */
export class StreamPruning {
  readonly #options: StreamPruningOptions;
  #after = 0;
  #passedAt = Number.NEGATIVE_INFINITY;

  constructor(options: StreamPruningOptions) {
    this.#options = options;
  }

  /**
   * One window of streams, at most every six hours. Answers how many it has removed.
   * @param now epoch milliseconds
   * @param mayGoOn asked before each batch; false ends the pass
   * @throws AppError storage_full, unavailable: what was not archived is all still there
   */
  async pass(now: number, signal: AbortSignal, mayGoOn: () => Promise<boolean>): Promise<number> {
    if (Math.abs(now - this.#passedAt) < STREAMS_PAUSE_MS) return 0;
    const { store } = this.#options;
    const ids = (await store.all(streamsAfter, { after: this.#after, limit: MOST_STREAMS })).map(({ id }) => id);
    if (this.#after === 0 && ids.length < FEW_STREAMS) return 0;
    const window: Window = { unused: new Set(ids), seenTo: ids[0] ?? 0 };
    while (ids.length > 0 && !signal.aborted && !(await look(store, window)))
      await new Promise((resolve) => setImmediate(resolve));
    const count = await this.#removeAll(window, signal, mayGoOn);
    if (signal.aborted) return count;
    this.#after = ids.length < MOST_STREAMS ? 0 : ids.at(-1)!;
    this.#passedAt = now;
    return count;
  }

  async #removeAll(window: Window, signal: AbortSignal, mayGoOn: () => Promise<boolean>): Promise<number> {
    const { store, archive } = this.#options;
    const unused = [...window.unused];
    let count = 0;
    for (let start = 0; start < unused.length; start += BATCH) {
      if (signal.aborted || !(await mayGoOn())) break;
      const rows = unused.slice(start, start + BATCH).map((id) => [id]);
      const found = await store.all(streamRows, { rows });
      await archive.append(found.map((row) => JSON.stringify({ table: 'stream', id: store.ids.encode(row.id), row })));
      count += await store.transact('retention.prune_stream', (tx) => remove(tx, rows, window));
    }
    return count;
  }
}

/** Takes the streams of the next tasks from the unused. Answers whether that was the last of them. */
async function look(reader: Reader | Pick<Store, 'all'>, window: Window): Promise<boolean> {
  const found = await reader.all(streamsOfTasks, { after: window.seenTo, limit: SLICE });
  let seen = 0;
  for (const { stream_id, last, count } of found) {
    window.unused.delete(stream_id);
    window.seenTo = Math.max(window.seenTo, last);
    seen += count;
  }
  return seen < SLICE;
}

async function remove(tx: Tx, rows: readonly number[][], window: Window): Promise<number> {
  while (!(await look(tx, window)));
  const still = rows.filter(([id]) => window.unused.has(id!));
  return still.length === 0 ? 0 : tx.run(removeStreams, { rows: still });
}
