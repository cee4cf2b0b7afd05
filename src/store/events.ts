import type { Tx } from './tx.ts';

/**
 * How a change travels up without an import up: lower rooms emit events into the transaction, `app.ts` subscribes higher rooms.
 * Events are drained before the commit, in the order of subscription, until no subscriber emits more; what the subscribers write
 * is part of the same transaction.
 */
export class EventQueue<E> {
  readonly #subscribers: ((tx: Tx, events: readonly E[]) => Promise<void>)[] = [];
  readonly #pending = new WeakMap<Tx, E[]>();

  emit(tx: Tx, events: readonly E[]): void {
    const queue = this.#pending.get(tx);
    if (queue) for (const event of events) queue.push(event);
    else this.#pending.set(tx, [...events]);
  }

  /** What this transaction has emitted and not drained yet. */
  pending(tx: Tx): readonly E[] {
    return this.#pending.get(tx) ?? [];
  }

  /** Call order is drain order. */
  subscribe(subscriber: (tx: Tx, events: readonly E[]) => Promise<void>): void {
    this.#subscribers.push(subscriber);
  }

  async drain(tx: Tx): Promise<void> {
    for (let events = this.#pending.get(tx); events && events.length > 0; events = this.#pending.get(tx)) {
      this.#pending.delete(tx);
      for (const subscriber of this.#subscribers) await subscriber(tx, events);
    }
  }
}
