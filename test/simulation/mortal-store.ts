import { AppError } from '../../src/errors.ts';
import type { BeforeCommit, Store, StoreStats } from '../../src/store/store.ts';
import type { Tx, Verb } from '../../src/store/tx.ts';

/** What goes wrong in a transaction that is not committed, or right after one that is. */
export interface Mishap {
  /** Counts down with every transaction; it happens at 0. */
  transactions: number;
  readonly place: 'before the events' | 'before the commit' | 'after the commit';
  /** The process dies; or the disk is full or a unit is bad, and it lives on. The latter two cannot happen after the commit. */
  readonly kind: 'death' | 'disk full' | 'bad unit';
}

/** What a unit that shared its transaction with nobody is told. */
export const BAD_UNIT = 'a unit of this transaction is bad';

/**
 * The real store, of a process that can die. From then on nothing is committed and nobody is answered any more: whoever waits for an
 * answer stays where it is for ever, as the code of a dead process does.
 */
export class MortalStore implements Store {
  readonly dialect: Store['dialect'];
  readonly ids: Store['ids'];
  dead = false;
  mishap: Mishap | null = null;
  readonly #store: Store;
  readonly #on: { death(): void; badUnit(): void };

  constructor(store: Store, on: { death(): void; badUnit(): void }) {
    this.#store = store;
    this.#on = on;
    this.dialect = store.dialect;
    this.ids = store.ids;
  }

  write<I, O>(verb: Verb<I, O>, items: readonly I[], patienceMs?: number): Promise<O[]> {
    return this.#whileAlive(() => this.#store.write(verb, items, patienceMs));
  }

  transact<T>(name: string, work: (tx: Tx) => Promise<T>): Promise<T> {
    return this.#whileAlive(() => this.#store.transact(name, work));
  }

  all: Store['all'] = (query, params) => this.#whileAlive(() => this.#store.all(query, params));
  fetch: Store['fetch'] = (query) => this.#whileAlive(() => this.#store.fetch(query));

  onBeforeCommit(hook: BeforeCommit): void {
    this.#store.onBeforeCommit(async (tx) => {
      const mishap = this.#countDown();
      if (this.dead) throw new Error('the process is dead');
      if (mishap?.place === 'before the events') this.#strike(mishap);
      await hook(tx);
      if (mishap?.place === 'before the commit') this.#strike(mishap);
      if (mishap?.place === 'after the commit') tx.afterCommit(() => this.die());
    });
  }

  stats(): StoreStats {
    return this.#store.stats();
  }

  close(): Promise<void> {
    return this.#store.close();
  }

  die(): void {
    if (this.dead) return;
    this.dead = true;
    this.#on.death();
  }

  /** What goes wrong in this transaction. */
  #countDown(): Mishap | null {
    const { mishap } = this;
    if (!mishap) return null;
    mishap.transactions -= 1;
    if (mishap.transactions > 0) return null;
    this.mishap = null;
    return mishap;
  }

  #strike({ kind }: Mishap): never {
    if (kind === 'disk full') throw new AppError('storage_full', 'the disk is full: nothing was stored');
    if (kind === 'death') this.die();
    else this.#on.badUnit();
    throw new Error(kind === 'death' ? 'the process is dead' : BAD_UNIT);
  }

  #whileAlive<T>(call: () => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.dead) return;
      call().then(
        (value) => !this.dead && resolve(value),
        (error: unknown) => !this.dead && reject(error),
      );
    });
  }
}
