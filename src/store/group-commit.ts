import { messageOf } from '../errors.ts';
import type { Verb } from './tx.ts';

/** One caller's items for one verb; succeeds or fails as a whole. */
export interface Unit {
  readonly verb: Verb<unknown, unknown>;
  readonly items: readonly unknown[];
  /** May wait so long for somebody else's transaction to go first, milliseconds; 0: the next turn. */
  readonly patienceMs: number;
  resolve(answers: unknown[]): void;
  reject(error: unknown): void;
}

export interface CommitEngine {
  /** Runs the units in one transaction; answers their results after the commit. Throws with everything rolled back. */
  commit(units: readonly Unit[]): Promise<unknown[][]>;
  /** True where the database itself failed (full disk, I/O): no unit can be to blame and none is tried again. */
  isStorageFault(error: unknown): boolean;
}

/** Upper bound of items in one transaction: bounds how long others wait for it. */
const MAX_ITEMS = 1_000;

/**
 * Group commit: calls of one event-loop turn share one transaction, each verb runs once over all their items, one commit, then each
 * caller is answered. There is no gather window: a turn is `setImmediate`; only a unit that says it is patient lets others go
 * first. A batch that throws is rolled back and its units run
 * one by one, so that a bad unit fails alone.
 */
export class GroupCommit {
  readonly #engine: CommitEngine;
  #queue: Unit[] = [];
  #scheduled = false;
  #busy = false;
  /** Ends the wait of the patient units. */
  #patience: NodeJS.Timeout | undefined;
  #idle: (() => void)[] = [];
  #closed = false;

  constructor(engine: CommitEngine) {
    this.#engine = engine;
  }

  submit<I, O>(verb: Verb<I, O>, items: readonly I[], patienceMs = 0): Promise<O[]> {
    if (this.#closed) return Promise.reject(new Error(`store is closed: ${verb.name}`));
    if (items.length === 0) return Promise.resolve([]);
    return new Promise<O[]>((resolve, reject) => {
      const unit = {
        verb: verb as Verb<unknown, unknown>,
        items,
        patienceMs,
        resolve: resolve as Unit['resolve'],
        reject,
      };
      this.#queue.push(unit);
      this.#schedule();
    });
  }

  /** Refuses new units and resolves when all accepted ones are answered. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#schedule();
    if (this.#busy || this.#queue.length > 0) await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  #schedule(): void {
    if (this.#scheduled || this.#busy || this.#queue.length === 0) return;
    const patienceMs = this.#closed ? 0 : Math.min(...this.#queue.map((unit) => unit.patienceMs));
    if (patienceMs > 0) {
      this.#patience ??= setTimeout(() => this.#arrange(), patienceMs);
    } else this.#arrange();
  }

  #arrange(): void {
    clearTimeout(this.#patience);
    this.#patience = undefined;
    if (this.#scheduled || this.#busy) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      void this.#turn();
    });
  }

  async #turn(): Promise<void> {
    const batch = this.#take();
    clearTimeout(this.#patience);
    this.#patience = undefined;
    this.#busy = true;
    await this.#commit(batch);
    this.#busy = false;
    // The patient ones go now, while those who were just answered are at work.
    if (this.#queue.length > 0) this.#arrange();
    else for (const resolve of this.#idle.splice(0)) resolve();
  }

  /**
   * A copy of the queue, never the live array: units that arrive meanwhile belong to the next turn. Patient units let the others go
   * first, in a transaction of their own.
   */
  #take(): Unit[] {
    const urgent = this.#queue.filter((unit) => unit.patienceMs === 0);
    const candidates = urgent.length > 0 ? urgent : this.#queue;
    let items = 0;
    let count = 0;
    while (count < candidates.length && (count === 0 || items + candidates[count]!.items.length <= MAX_ITEMS)) {
      items += candidates[count]!.items.length;
      count += 1;
    }
    const taken = candidates.slice(0, count);
    const gone = new Set(taken);
    this.#queue = this.#queue.filter((unit) => !gone.has(unit));
    return taken;
  }

  async #commit(batch: readonly Unit[]): Promise<void> {
    try {
      const answers = await this.#engine.commit(batch);
      for (const [index, unit] of batch.entries()) unit.resolve(answers[index]!);
    } catch (error) {
      if (batch.length === 1 || this.#engine.isStorageFault(error)) {
        for (const unit of batch) unit.reject(error);
      } else {
        for (const unit of batch) await this.#commitAlone(unit);
      }
    }
  }

  /** In a turn of its own: whoever was just answered may use the store before the next transaction is open. */
  async #commitAlone(unit: Unit): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    await this.#commit([unit]);
  }
}

/** The units' items joined per verb, in rank order; `slices` tells which answers belong to which unit. */
export interface VerbCall {
  readonly verb: Verb<unknown, unknown>;
  readonly items: unknown[];
  readonly slices: { unit: number; from: number; to: number }[];
}

export function groupByVerb(units: readonly Unit[]): VerbCall[] {
  const calls = new Map<Verb<unknown, unknown>, VerbCall>();
  for (const [unit, { verb, items }] of units.entries()) {
    const call: VerbCall = calls.get(verb) ?? { verb, items: [], slices: [] };
    calls.set(verb, call);
    const from = call.items.length;
    for (const item of items) call.items.push(item);
    call.slices.push({ unit, from, to: call.items.length });
  }
  return [...calls.values()].sort((a, b) => (a.verb.rank ?? 50) - (b.verb.rank ?? 50));
}

/** Runs the calls and spreads the answers over the units. */
export async function runCalls(
  calls: readonly VerbCall[],
  unitCount: number,
  run: (call: VerbCall) => Promise<unknown[]>,
): Promise<unknown[][]> {
  const answers: unknown[][] = new Array<unknown[]>(unitCount);
  for (const call of calls) {
    const results = await run(call);
    if (results.length !== call.items.length) {
      throw new Error(`${call.verb.name} answered ${results.length} of ${call.items.length} items`);
    }
    for (const { unit, from, to } of call.slices) answers[unit] = results.slice(from, to);
  }
  return answers;
}

/** What callers of a transaction see when one of them broke its rules. */
export function foreignAwait(verbs: string): Error {
  return new Error(`a transaction awaited something outside of itself and was rolled back (${messageOf(verbs)})`);
}
