import { AppError } from '../errors.ts';
import type { IdCodec } from '../ids.ts';
import type { Reader, Tx, Verb } from './tx.ts';

/** Called inside every transaction after its verbs, before the commit; may run further verbs with the same `tx`. */
export type BeforeCommit = (tx: Tx) => Promise<void>;

export interface StoreStats {
  readonly transactions: number;
  readonly units: number;
  readonly rollbacks: number;
  /** Bytes of the write-ahead log; 0 where the database has none of its own. */
  readonly walBytes: number;
}

/**
 * The database. Writing goes through `write` (set-based verbs, group commit) or `transact` (one closure as a unit of the same group
 * commit); reading through a second connection that never sees uncommitted rows. Used inside a transaction, every method of the
 * store itself rejects at once: use the `tx`.
 * @throws AppError storage_full when the disk is full: nothing of the call was stored.
 */
export interface Store extends Reader {
  readonly ids: IdCodec;
  /** @param patienceMs how long others may go first, where the answer is not urgent; default 0, the next turn */
  write<I, O>(verb: Verb<I, O>, items: readonly I[], patienceMs?: number): Promise<O[]>;
  transact<T>(name: string, work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Registers the one hook that drains events before each commit. */
  onBeforeCommit(hook: BeforeCommit): void;
  stats(): StoreStats;
  /** Resolves when accepted writes are answered and the files are closed and unlocked. */
  close(): Promise<void>;
}

export function insideTransaction(what: string): AppError {
  return new AppError('internal', `${what}: the store was used inside a transaction; use its tx`);
}
