import type { Clock } from '../../src/clock.ts';

const real = { setTimeout, clearTimeout, setImmediate, clearImmediate, random: Math.random };
const realPerformanceNow = performance.now;

/** Where the wall clock of a simulation begins. */
export const EPOCH = 1_800_000_000_000;
/** So many turns of the event loop without an end mean that something goes round in circles. */
const MANY_TURNS = 20_000;

interface VirtualTimer {
  readonly at: number;
  readonly order: number;
  fire(): void;
}

/**
 * All time of one simulation: the wall clock that the store reads (it can jump), the monotonic one and the timers that hang on it.
 * While installed it stands in for the process' own timers, so that what waits for a second waits for nobody.
 */
export class VirtualTime implements Clock {
  /** Milliseconds since the beginning; never goes back. */
  monotonic = 0;
  #offset = EPOCH;
  #random: () => number = real.random;
  #order = 0;
  readonly #timers = new Map<object, VirtualTimer>();
  readonly #immediates = new Set<object>();

  now(): number {
    return this.#offset + this.monotonic;
  }

  /** The wall clock alone moves. */
  jump(ms: number): void {
    this.#offset += ms;
  }

  /** Time passes; what is due fires with the next `settle`. */
  pass(ms: number): void {
    this.monotonic += ms;
  }

  /** Whose numbers `Math.random` hands out. */
  drawFrom(random: () => number): void {
    this.#random = random;
  }

  install(): void {
    globalThis.setTimeout = ((fire: () => void, ms = 0) => this.#addTimer(fire, ms)) as typeof setTimeout;
    globalThis.clearTimeout = ((timer: object) => void this.#timers.delete(timer)) as typeof clearTimeout;
    globalThis.setImmediate = ((fire: () => void) => this.#addImmediate(fire)) as typeof setImmediate;
    globalThis.clearImmediate = ((immediate: NodeJS.Immediate) => {
      this.#immediates.delete(immediate);
      real.clearImmediate(immediate);
    }) as typeof clearImmediate;
    performance.now = () => this.monotonic;
    Math.random = () => this.#random();
  }

  uninstall(): void {
    const { random, ...timers } = real;
    Object.assign(globalThis, timers);
    performance.now = realPerformanceNow;
    Math.random = random;
  }

  /** Nothing that waits for a moment will ever go on: the process that waited is dead. */
  dropTimers(): void {
    this.#timers.clear();
  }

  /** Lets the event loop turn `count` times, whatever is going on. */
  async turns(count: number): Promise<void> {
    for (let turn = 0; turn < count; turn += 1) await nextTurn();
  }

  /** Fires what is due now and waits for nothing of what that begins. */
  fireDue(): void {
    for (let due = this.#nextDue(); due; due = this.#nextDue()) {
      this.#timers.delete(due[0]);
      due[1].fire();
    }
  }

  /** Until nothing more happens before time passes. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < MANY_TURNS; turn += 1) {
      await nextTurn();
      if (this.#immediates.size > 0) continue;
      const due = this.#nextDue();
      if (!due) return;
      this.#timers.delete(due[0]);
      due[1].fire();
    }
    throw new Error('the processes do not come to rest: something goes round in circles');
  }

  #nextDue(): [object, VirtualTimer] | undefined {
    let first: [object, VirtualTimer] | undefined;
    for (const entry of this.#timers) {
      const { at, order } = entry[1];
      if (at > this.monotonic) continue;
      if (!first || at < first[1].at || (at === first[1].at && order < first[1].order)) first = entry;
    }
    return first;
  }

  #addTimer(fire: () => void, ms: number): object {
    const timer = { ref: () => timer, unref: () => timer };
    this.#order += 1;
    this.#timers.set(timer, { at: this.monotonic + Math.max(0, ms), order: this.#order, fire });
    return timer;
  }

  #addImmediate(fire: () => void): NodeJS.Immediate {
    const immediate = real.setImmediate(() => {
      this.#immediates.delete(immediate);
      fire();
    });
    this.#immediates.add(immediate);
    return immediate;
  }
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => real.setImmediate(resolve));
}
