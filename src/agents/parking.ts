/** Long polls that wait in memory: losing them loses latency, never work. */
export interface Parked<T> {
  readonly key: string;
  /** Answers the poll; later calls do nothing. */
  answer(value: T): void;
}

export class ParkingLot<T, P extends Parked<T>> {
  readonly #cars = new Set<P>();

  get size(): number {
    return this.#cars.size;
  }

  /** In order of arrival. */
  all(): P[] {
    return [...this.#cars];
  }

  of(key: string): P[] {
    return this.all().filter((car) => car.key === key);
  }

  /**
   * Waits until answered, until `waitMs` is over or until `gone` fires (the caller hung up); the latter two answer `empty`.
   * @param make builds the parked poll from its answer function
   */
  wait(make: (answer: (value: T) => void) => P, waitMs: number, empty: T, gone: AbortSignal): Promise<T> {
    return new Promise<T>((resolve) => {
      const leave = (value: T) => {
        if (!this.#cars.delete(car)) return;
        clearTimeout(timer);
        gone.removeEventListener('abort', onGone);
        resolve(value);
      };
      const car = make(leave);
      const onGone = () => leave(empty);
      const timer = setTimeout(() => leave(empty), waitMs);
      this.#cars.add(car);
      gone.addEventListener('abort', onGone, { once: true });
      if (gone.aborted) leave(empty);
    });
  }

  /** Everybody is sent away with `value`; for stopping. */
  clear(value: T): void {
    for (const car of this.all()) car.answer(value);
  }
}
