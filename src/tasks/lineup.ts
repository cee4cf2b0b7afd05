import { Heap } from './heap.ts';
import { type Aside, type Found, Ring, type Start } from './ring.ts';
import { PRIORITIES } from './states.ts';
import type { Stream } from './streams.ts';

/** The tasks of one stream with one priority: first come, first served. */
export interface Band {
  readonly stream: Stream;
  /** Index into `PRIORITIES`. */
  readonly priority: number;
  /** Who is held back together, but for what holds back an owner alone: template and lane; the queue is that of the ring. */
  readonly group: string;
  /** When its first task may start, epoch milliseconds; about: the rows decide. */
  headAt: number;
  /** When it was last served, by count; decides whose turn it is. */
  served: number;
  /** How often a task has come into it; tells whether what was read of its rows is still true. */
  notes: number;
  /** `later`: its first task is not due yet. `aside`: held back as a whole, until then or until `recall`. */
  place: 'ready' | 'later' | 'aside' | 'gone';
  /** When it is looked at again, where it is not ready. */
  wakeAt: number;
}

/** Shares of high, normal and low in one round, while all three have work; the better goes first until its share is used up. */
export const WEIGHTS = [6, 3, 1] as const;
/** After so long the oldest task of a band makes it weigh as much as the next better one, and after twice as long as the best. */
export const AGING_MS = 300_000;

/** What is left of each priority's share in this round, of one agent. */
export interface Turns {
  readonly credit: number[];
}

export interface Choice {
  readonly band: Band;
  /** How many tasks may be taken from it before the next look. */
  readonly count: number;
}

/**
 * Which band is next: weighted round robin over the priorities with aging, round robin over the owners within one, first come first
 * served within an owner. In memory and a hint: it may name a band that is empty (the claim finds out) and is loaded from the rows at
 * the start and again from time to time. Pure but for its own state; takes no time and no chance from outside.
 */
export class Lineup {
  readonly #bands = new Map<number, Band>();
  /** By queue: one per priority. */
  readonly #rings = new Map<string, Ring[]>();
  readonly #later = new Heap<Band>();
  #turn = 0;

  get size(): number {
    return this.#bands.size;
  }

  /** When the next band comes due that is not yet; infinity without one. */
  get nextAt(): number {
    return this.#later.first;
  }

  /** A task has come into this band. */
  note(stream: Stream, priority: number, runAt: number): void {
    const band = this.#band(stream, priority);
    band.notes += 1;
    if (band.place === 'ready' || band.place === 'aside') band.headAt = Math.min(band.headAt, runAt);
    else if (band.place === 'gone' || runAt < band.headAt) this.#postpone(band, runAt);
  }

  /**
   * What the rows said of the band's first task (null: it has none) when `notes` tasks had come into it; not believed if more have
   * come since.
   */
  correct(band: Band, headAt: number | null, now: number, notes: number): void {
    if (band.notes !== notes || this.#bands.get(keyOf(band.stream.id, band.priority)) !== band) return;
    if (headAt === null) this.#drop(band);
    else if (band.place === 'aside') band.headAt = headAt;
    else if (headAt > now) this.#postpone(band, headAt);
    else band.headAt = headAt;
  }

  /** What was set aside is looked at again: what held it back may be gone. */
  recall(): void {
    for (const band of this.#bands.values()) if (band.place === 'aside') this.#postpone(band, band.headAt);
  }

  /** Whether something that is due, and not set aside, stands in one of these queues. */
  hasReady(queues: readonly string[]): boolean {
    return queues.some((queue) => this.#rings.get(queue)?.some((ring) => !ring.isEmpty));
  }

  /** Forgets everything, for a load from the rows. */
  clear(): void {
    this.#bands.clear();
    this.#rings.clear();
    while (this.#later.pop() !== undefined);
  }

  /**
   * The next band for an agent that serves these queues, or undefined. `mayStart` tells how many tasks of the band may start now.
   * Changes nothing but the order of what was passed by, and what is set aside; `take` makes it so.
   */
  next(queues: readonly string[], turns: Turns, now: number, mayStart: (band: Band) => Start): Choice | undefined {
    this.#advance(now);
    const found = PRIORITIES.map((_, priority) => this.#first(queues, priority, now, mayStart));
    const rivals = found.filter((choice) => choice !== undefined);
    if (rivals.length === 0) return undefined;
    if (rivals.length === 1) return { band: rivals[0]!.band, count: rivals[0]!.alone ? rivals[0]!.count : 1 };
    let best = rivals.find(({ band }) => turns.credit[band.priority]! > 0);
    if (!best) {
      // The round is over: everybody gets the share that the age of its first task gives it.
      for (const { band } of rivals) turns.credit[band.priority] = weightOf(band, now);
      best = rivals[0]!;
    }
    turns.credit[best.band.priority]! -= 1;
    return { band: best.band, count: 1 };
  }

  /** The band's owner has had its turn. */
  take(band: Band): void {
    this.#turn += 1;
    this.#ring(band.stream.queue, band.priority).take(band, this.#turn);
  }

  /** All bands of these queues; for explanations. */
  bandsOf(queue: string): Band[] {
    return [...this.#bands.values()].filter((band) => band.stream.queue === queue);
  }

  /** All bands whose first task is due, held back or not. */
  *due(now: number): Generator<Band> {
    for (const band of this.#bands.values()) if (band.headAt <= now) yield band;
  }

  #band(stream: Stream, priority: number): Band {
    const key = keyOf(stream.id, priority);
    let band = this.#bands.get(key);
    if (!band) {
      band = {
        stream,
        priority,
        group: `${stream.template}\n${stream.lane}`,
        headAt: Number.POSITIVE_INFINITY,
        served: this.#turn,
        notes: 0,
        place: 'gone',
        wakeAt: 0,
      };
      this.#bands.set(key, band);
    }
    return band;
  }

  #ring(queue: string, priority: number): Ring {
    let rings = this.#rings.get(queue);
    if (!rings) {
      rings = PRIORITIES.map(() => new Ring());
      this.#rings.set(queue, rings);
    }
    return rings[priority]!;
  }

  #postpone(band: Band, headAt: number): void {
    this.#leaveRing(band);
    band.place = 'later';
    band.headAt = headAt;
    this.#wake(band, headAt);
  }

  #setAside(band: Band, untilAt: number): void {
    this.#leaveRing(band);
    band.place = 'aside';
    this.#wake(band, untilAt);
  }

  #wake(band: Band, at: number): void {
    band.wakeAt = at;
    if (at < Number.POSITIVE_INFINITY) this.#later.push(at, band);
  }

  #drop(band: Band): void {
    this.#leaveRing(band);
    band.place = 'gone';
    this.#bands.delete(keyOf(band.stream.id, band.priority));
  }

  #leaveRing(band: Band): void {
    if (band.place === 'ready') this.#ring(band.stream.queue, band.priority).remove(band);
  }

  /** Brings what has come due into the rings. An entry of the heap whose band has moved since is stale. */
  #advance(now: number): void {
    while (this.#later.first <= now) {
      const at = this.#later.first;
      const band = this.#later.pop()!;
      if (band.place === 'ready' || band.place === 'gone' || band.wakeAt !== at) continue;
      band.place = 'ready';
      this.#ring(band.stream.queue, band.priority).add(band);
    }
  }

  /** What is set aside in a look makes room for the next one, so that no number of held streams hides what stands behind them. */
  #first(
    queues: readonly string[],
    priority: number,
    now: number,
    mayStart: (band: Band) => Start,
  ): (Found & { alone: boolean }) | undefined {
    for (;;) {
      const held: [Band, Aside][] = [];
      const found = this.#look(queues, priority, (band) => {
        const start = mayStart(band);
        if (typeof start !== 'object') return start;
        if (start.untilAt > now) held.push([band, start]);
        return 0;
      });
      for (const [band, { untilAt }] of held) this.#setAside(band, untilAt);
      if (found || held.length === 0) return found;
    }
  }

  #look(
    queues: readonly string[],
    priority: number,
    mayStart: (band: Band) => Start,
  ): (Found & { alone: boolean }) | undefined {
    let best: Found | undefined;
    let size = 0;
    for (const queue of queues) {
      const ring = this.#rings.get(queue)?.[priority];
      if (!ring || ring.isEmpty) continue;
      size += ring.size;
      const found = ring.first(mayStart);
      if (found && (best === undefined || found.band.served < best.band.served)) best = found;
    }
    return best && { ...best, alone: size === 1 };
  }
}

function keyOf(streamId: number, priority: number): number {
  return streamId * PRIORITIES.length + priority;
}

function weightOf(band: Band, now: number): number {
  const steps = Math.floor(Math.max(0, now - band.headAt) / AGING_MS);
  return WEIGHTS[Math.max(0, band.priority - steps)]!;
}
