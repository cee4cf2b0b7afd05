import type { Band } from './lineup.ts';

/** Why nothing of a band may start for a while: it need not be looked at before. */
export interface Aside {
  /** Epoch milliseconds; infinity: until `recall`. */
  readonly untilAt: number;
}

/**
 * How many tasks of a band may start now. 0: it alone is passed by in this look. `crowded`: nothing of its group may start, whoever it
 * is for. `unsure`: facts are missing, so this look decides nothing.
 */
export type Start = number | Aside | 'crowded' | 'unsure';

export interface Found {
  readonly band: Band;
  readonly count: number;
}

/** One look at the owners in turn. */
interface Look {
  readonly mayStart: (band: Band) => Start;
  /** Groups that are known to be held back. */
  readonly held: Set<string>;
  passed: number;
  unsure: number;
}

/** So many bands that may not start anything are passed by in one look; they then stand behind the others. */
const MAX_LOOKS = 5_000;
/** So many bands of which something is not known yet are asked about at once. */
const MAX_UNSURE = 32;

/**
 * Bands of one queue and priority of which something is due, by owner, in the order in which the owners' turns come. A band whose group
 * is held back leaves the turns for the crowd of its group, of which one is looked at instead of thousands; a crowd is left in the order
 * in which it came, one band with every start.
 */
export class Ring {
  readonly #owners = new Map<string, Band[]>();
  readonly #crowds = new Map<string, Set<Band>>();

  get isEmpty(): boolean {
    return this.#owners.size === 0 && this.#crowds.size === 0;
  }

  /** Owners and bands of crowds; 1: everything there is may be taken at once. */
  get size(): number {
    let size = this.#owners.size;
    for (const crowd of this.#crowds.values()) size += crowd.size;
    return size;
  }

  /** Comes in behind the others. */
  add(band: Band): void {
    const bands = this.#owners.get(band.stream.owner);
    if (bands) bands.push(band);
    else this.#owners.set(band.stream.owner, [band]);
  }

  remove(band: Band): void {
    const crowd = this.#crowds.get(band.group);
    if (crowd?.delete(band)) {
      if (crowd.size === 0) this.#crowds.delete(band.group);
      return;
    }
    const left = (this.#owners.get(band.stream.owner) ?? []).filter((own) => own !== band);
    if (left.length > 0) this.#owners.set(band.stream.owner, left);
    else this.#owners.delete(band.stream.owner);
  }

  /** The band's owner has had its turn, the one of this number. */
  take(band: Band, turn: number): void {
    const { owner } = band.stream;
    if (this.#crowds.get(band.group)?.has(band)) {
      this.remove(band);
      this.add(band);
    }
    const bands = this.#owners.get(owner);
    if (!bands) return;
    for (const own of bands) own.served = turn;
    this.#owners.delete(owner);
    this.#owners.set(owner, bands);
  }

  /** The first in turn of which something may start; those of owners who are passed by in large numbers go to the end. */
  first(mayStart: (band: Band) => Start): Found | undefined {
    const held = new Set<string>();
    let best: Found | undefined;
    for (const [group, crowd] of this.#crowds) {
      const found = this.#ofCrowd(group, crowd, mayStart, held);
      if (found && (!best || isBefore(found.band, best.band))) best = found;
    }
    const found = this.#inTurn(mayStart, held);
    return found && (!best || isBefore(found.band, best.band)) ? found : best;
  }

  /** Whoever is held back for a reason of its own goes back to the turns: the crowd is for those who are not. */
  #ofCrowd(
    group: string,
    crowd: ReadonlySet<Band>,
    mayStart: (band: Band) => Start,
    held: Set<string>,
  ): Found | undefined {
    for (const band of crowd) {
      const start = mayStart(band);
      if (start === 'crowded') held.add(group);
      if (start === 'crowded' || start === 'unsure') return undefined;
      if (typeof start === 'number' && start > 0) return { band, count: start };
      this.remove(band);
      this.add(band);
    }
    return undefined;
  }

  #inTurn(mayStart: (band: Band) => Start, held: Set<string>): Found | undefined {
    const look: Look = { mayStart, held, passed: 0, unsure: 0 };
    const passed: [string, Band[]][] = [];
    for (const [owner, bands] of this.#owners) {
      const found = this.#ofOwner(bands, look);
      if (found || look.unsure >= MAX_UNSURE) return found;
      const left = this.#owners.get(owner);
      if (left) passed.push([owner, left]);
      if (look.passed >= MAX_LOOKS) {
        this.#toTheEnd(passed);
        return undefined;
      }
    }
    return undefined;
  }

  #ofOwner(bands: readonly Band[], look: Look): Found | undefined {
    for (const band of bands.length === 1 ? bands : inOrder(bands)) {
      const start = look.held.has(band.group) ? 'crowded' : look.mayStart(band);
      if (typeof start === 'number' && start > 0) return { band, count: bands.length === 1 ? start : 1 };
      if (start === 'crowded') this.#join(band, look.held);
      else look.passed += 1;
      if (start === 'unsure') look.unsure += 1;
    }
    return undefined;
  }

  #join(band: Band, held: Set<string>): void {
    held.add(band.group);
    this.remove(band);
    const crowd = this.#crowds.get(band.group);
    if (crowd) crowd.add(band);
    else this.#crowds.set(band.group, new Set([band]));
  }

  #toTheEnd(passed: readonly [string, Band[]][]): void {
    for (const [owner, bands] of passed) {
      this.#owners.delete(owner);
      this.#owners.set(owner, bands);
    }
  }
}

const inOrder = (bands: readonly Band[]) => [...bands].sort((a, b) => a.headAt - b.headAt || a.stream.id - b.stream.id);

function isBefore(a: Band, b: Band): boolean {
  return a.served < b.served || (a.served === b.served && a.headAt < b.headAt);
}
