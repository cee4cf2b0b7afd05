import { backoffMs, DEFAULT_BACKOFF } from '../backoff.ts';
import { AppError, messageOf } from '../errors.ts';
import type { Log } from '../log.ts';
import { Poller, type Service } from '../service.ts';
import type { Store } from '../store/store.ts';
import type { Tx } from '../store/tx.ts';

/** Rows that wait to be worked off, in order. */
export interface RowLoopOptions<R extends { readonly id: number }> {
  readonly store: Store;
  readonly log: Log;
  /** For logs and transactions, for example `intake`. */
  readonly name: string;
  /** The oldest waiting rows. */
  read(limit: number): Promise<R[]>;
  /** Works one row off in a transaction of its own; afterwards it no longer waits. */
  work(tx: Tx, row: R): Promise<void>;
  /** `work` threw and was rolled back: count it, or park the row when it was often enough. In a transaction of its own. */
  onFault(tx: Tx, row: R, error: unknown): Promise<void>;
  /** Pause before rows that failed are tried again, milliseconds; default 1 s. */
  readonly retryPauseMs?: number;
}

export interface RowLoop extends Service {
  /** There may be new rows. */
  wake(): void;
}

/** Rows worked off in one round; each is a unit of its own, all share one group commit. */
const ROWS_PER_ROUND = 50;
/** Wake-ups are hints; a lost one costs at most this. */
const IDLE_MS = 5_000;

/**
 * Works rows off: at start what a crash left behind, then on every `wake`. A row that throws fails alone and does not stop the
 * others; when the database itself fails no row is to blame, and all are tried again after a growing pause.
 */
export function createRowLoop<R extends { readonly id: number }>(options: RowLoopOptions<R>): RowLoop {
  return new Poller({
    runOnce: () => runOnce(options),
    onError: (error, failures) => {
      options.log.warn(`${options.name}.store_failed`, { error: messageOf(error), failures });
      return backoffMs({ ...DEFAULT_BACKOFF, capMs: 30_000 }, failures);
    },
  });
}

async function runOnce<R extends { readonly id: number }>(options: RowLoopOptions<R>): Promise<number> {
  const rows = await options.read(ROWS_PER_ROUND);
  const { store, name } = options;
  const ends = await Promise.allSettled(rows.map((row) => store.transact(name, (tx) => options.work(tx, row))));
  const faults = ends.flatMap((end, index) =>
    end.status === 'rejected' ? [{ row: rows[index]!, error: end.reason as unknown }] : [],
  );
  const ofStore = faults.find(({ error }) => isStoreFault(error));
  if (ofStore) throw ofStore.error;
  for (const { row, error } of faults) await blame(options, row, error);
  if (faults.length > 0) return options.retryPauseMs ?? DEFAULT_BACKOFF.baseMs;
  return rows.length === ROWS_PER_ROUND ? 0 : IDLE_MS;
}

async function blame<R extends { readonly id: number }>(
  options: RowLoopOptions<R>,
  row: R,
  error: unknown,
): Promise<void> {
  const { store, log, name } = options;
  log.error(`${name}.row_failed`, { row: store.ids.encode(row.id), error: messageOf(error) });
  try {
    await store.transact(`${name}.fault`, (tx) => options.onFault(tx, row, error));
  } catch (second) {
    // The row keeps waiting as it was, and the other rows of this round still get their turn.
    log.error(`${name}.fault_not_stored`, { row: store.ids.encode(row.id), error: messageOf(second) });
  }
}

function isStoreFault(error: unknown): boolean {
  return error instanceof AppError && (error.code === 'storage_full' || error.code === 'unavailable');
}
