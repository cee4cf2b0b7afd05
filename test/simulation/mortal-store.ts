import type { BeforeCommit, Store, StoreStats } from '../../src/store/store.ts';
import type { Tx, Verb } from '../../src/store/tx.ts';

/** Where a process dies: with a transaction that is not committed, or right after one that is. */
export interface Death {
  /** Counts down with every transaction; it happens at 0. */
  transactions: number;
  readonly place: 'before the events' | 'before the commit' | 'after the commit';
}

/**
 * The real store, of a process that can die. From then on nothing is committed and nobody is answered any more: whoever waits for an
 * answer stays where it is for ever, as the code of a dead process does.
 */
export class MortalStore implements Store {
  readonly dialect: Store['dialect'];
  readonly ids: Store['ids'];
  dead = false;
  death: Death | null = null;
  readonly #store: Store;
  readonly #onDeath: () => void;

  constructor(store: Store, onDeath: () => void) {
    this.#store = store;
    this.#onDeath = onDeath;
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
      const death = this.#countDown();
      this.#dieIf(this.dead || death?.place === 'before the events');
      await hook(tx);
      this.#dieIf(death?.place === 'before the commit');
      if (death) tx.afterCommit(() => this.die());
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
    this.#onDeath();
  }

  /** The death that this transaction brings. */
  #countDown(): Death | null {
    if (!this.death) return null;
    this.death.transactions -= 1;
    return this.death.transactions <= 0 ? this.death : null;
  }

  #dieIf(now: boolean): void {
    if (!now) return;
    this.die();
    throw new Error('the process is dead');
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
