import type { Compilable, RawBuilder } from 'kysely';
import type { Dialect, HotQuery } from './dialect.ts';

/** Reading: by a hot statement or by a statement built on the spot (cold paths). */
export interface Reader {
  readonly dialect: Dialect;
  all<P extends Record<string, unknown>, R>(query: HotQuery<P, R>, params: P): Promise<R[]>;
  fetch<R>(query: Compilable<R> | RawBuilder<R>): Promise<R[]>;
}

/**
 * An open transaction. Verbs are `async (tx, items[])`, call other verbs with the same `tx`, and await nothing else: awaiting
 * anything that is not this transaction rolls it back with an error instead of hanging.
 */
export interface Tx extends Reader {
  /** The time of this transaction, epoch milliseconds; the same for everything in it. */
  readonly now: number;
  /** How long what ends in it is kept, milliseconds; a setting. */
  readonly retentionMs: number;
  /** Runs a statement for its effect; answers the number of rows it changed. */
  run<P extends Record<string, unknown>>(query: HotQuery<P, unknown>, params: P): Promise<number>;
  exec(query: Compilable | RawBuilder<unknown>): Promise<number>;
  /** Reserves `count` consecutive ids and answers the first. Ids are never used twice, also not after a crash; gaps are normal. */
  ids(count: number): Promise<number>;
  /** Runs once the commit is on disk; never when it is rolled back. For wake-ups: must not throw. */
  afterCommit(action: () => void): void;
}

/** A unit of work over an array: one answer per item, in order. Zero changed rows is an answer, not an exception. */
export interface Verb<I, O> {
  readonly name: string;
  /** Order among the verbs of one transaction, lowest first (default 50): reports before creates before claims. */
  readonly rank?: number;
  run(tx: Tx, items: readonly I[]): Promise<O[]>;
}
