import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import { Heap } from '../../src/tasks/heap.ts';
import { AGING_MS, type Band, Lineup, type Turns, WEIGHTS } from '../../src/tasks/lineup.ts';
import type { Stream } from '../../src/tasks/streams.ts';

const NOW = 1_800_000_000_000;
const QUEUE = 'default/shell';
let lineup: Lineup;
let turns: Turns;
let nextId = 1;
beforeEach(() => {
  lineup = new Lineup();
  turns = { credit: [0, 0, 0] };
});

function stream(more: Partial<Stream> = {}): Stream {
  nextId += 1;
  return { id: nextId, queue: QUEUE, owner: '', template: 't', lane: 'main', serial: '', ...more };
}

const anyNumber = () => Number.POSITIVE_INFINITY;

/** Takes one task after another, as a claim does, from bands that never run dry. */
function taken(count: number, mayStart: (band: Band) => number = anyNumber, now = NOW): Band[] {
  const order: Band[] = [];
  while (order.length < count) {
    const choice = lineup.next([QUEUE], turns, now, mayStart);
    if (!choice) break;
    lineup.take(choice.band);
    order.push(choice.band);
  }
  return order;
}

const tally = (bands: readonly Band[], key: (band: Band) => string | number) =>
  Object.fromEntries(
    [...new Set(bands.map(key))].sort().map((value) => [value, bands.filter((band) => key(band) === value).length]),
  );

describe('priorities', () => {
  it('share by their weights while all have work, the better ones first in each round', () => {
    for (const priority of [2, 1, 0]) lineup.note(stream(), priority, NOW);
    const round = WEIGHTS.reduce((sum, weight) => sum + weight, 0);
    const order = taken(3 * round).map((band) => band.priority);
    expect(order.slice(0, round)).toEqual([0, 0, 0, 0, 0, 0, 1, 1, 1, 2]);
    expect(order).toEqual([...order.slice(0, round), ...order.slice(0, round), ...order.slice(0, round)]);
  });

  it('take all there is when they are alone, and what is left over goes to the others', () => {
    lineup.note(stream(), 2, NOW);
    expect(lineup.next([QUEUE], turns, NOW, anyNumber)).toMatchObject({ count: Number.POSITIVE_INFINITY });
    lineup.note(stream(), 0, NOW);
    const low = taken(1, (band) => (band.priority === 0 ? 0 : 1));
    expect(low.map((band) => band.priority)).toEqual([2]);
  });

  it('weigh as the next better one when the first task has waited long, and as the best after twice that', () => {
    const oldest = stream();
    lineup.note(stream(), 0, NOW);
    lineup.note(oldest, 2, NOW - AGING_MS);
    expect(tally(taken(90), (band) => band.priority)).toEqual({ 0: 60, 2: 30 });
    lineup = new Lineup();
    turns = { credit: [0, 0, 0] };
    lineup.note(stream(), 0, NOW);
    lineup.note(oldest, 2, NOW - 2 * AGING_MS);
    expect(tally(taken(120), (band) => band.priority)).toEqual({ 0: 60, 2: 60 });
  });
});

describe('owners', () => {
  it('take turns, however many streams one of them has and however much waits in them', () => {
    for (let n = 0; n < 20; n += 1) lineup.note(stream({ owner: 'busy', template: `t${n}` }), 1, NOW - 1_000);
    lineup.note(stream({ owner: 'quiet' }), 1, NOW);
    lineup.note(stream({ owner: 'other' }), 1, NOW);
    expect(tally(taken(30), (band) => band.stream.owner)).toEqual({ busy: 10, other: 10, quiet: 10 });
    expect(new Set(taken(3).map((band) => band.stream.owner)).size).toBe(3);
  });

  it('who come later are served within one round', () => {
    for (let n = 0; n < 50; n += 1) lineup.note(stream({ owner: `o${n}` }), 1, NOW);
    taken(120);
    lineup.note(stream({ owner: 'late' }), 1, NOW);
    expect(taken(51).map((band) => band.stream.owner)).toContain('late');
  });

  it('are taken from in the order in which their own tasks came', () => {
    const later = stream({ owner: 'a', template: 'later' });
    const sooner = stream({ owner: 'a', template: 'sooner' });
    lineup.note(later, 1, NOW - 1);
    lineup.note(sooner, 1, NOW - 2);
    expect(taken(1)[0]!.stream).toBe(sooner);
  });

  it('of several queues take turns, too', () => {
    lineup.note(stream({ owner: 'a' }), 1, NOW);
    lineup.note(stream({ owner: 'b', queue: '@pc/shell' }), 1, NOW);
    const order: string[] = [];
    for (let n = 0; n < 4; n += 1) {
      const { band } = lineup.next([QUEUE, '@pc/shell'], turns, NOW, anyNumber)!;
      lineup.take(band);
      order.push(band.stream.owner);
    }
    expect(order).toEqual(['a', 'b', 'a', 'b']);
  });

  it('who may not start anything are passed by, and the next look begins behind them when there were many', () => {
    for (let n = 0; n < 6_000; n += 1) lineup.note(stream({ owner: `held${n}` }), 1, NOW - 1);
    lineup.note(stream({ owner: 'free' }), 1, NOW);
    const mayStart = (band: Band) => (band.stream.owner === 'free' ? 1 : 0);
    expect(lineup.next([QUEUE], turns, NOW, mayStart)).toBeUndefined();
    expect(lineup.next([QUEUE], turns, NOW, mayStart)?.band.stream.owner).toBe('free');
  });
});

describe('time', () => {
  it('brings delayed bands in when they are due and not before, whatever their number', () => {
    for (let n = 0; n < 1_000; n += 1) lineup.note(stream({ owner: `o${n}` }), 0, NOW + 1_000 + n);
    lineup.note(stream({ owner: 'due' }), 2, NOW);
    expect(taken(1)[0]!.stream.owner).toBe('due');
    expect(lineup.nextAt).toBe(NOW + 1_000);
    expect(taken(1, (band) => (band.priority === 0 ? 1 : 0))).toEqual([]);
    expect(taken(2, anyNumber, NOW + 1_001).map((band) => band.stream.owner)).toEqual(['o0', 'o1']);
  });

  it('that the rows tell decides: an empty band leaves, a delayed one waits', () => {
    const own = stream();
    lineup.note(own, 1, NOW);
    const [band] = taken(1);
    lineup.correct(band!, NOW + 500, NOW, band!.notes);
    expect(taken(1)).toEqual([]);
    expect(taken(1, anyNumber, NOW + 500)).toEqual([band]);
    lineup.correct(band!, null, NOW + 500, band!.notes);
    expect(lineup.size).toBe(0);
    lineup.note(own, 1, NOW + 600);
    expect(taken(1, anyNumber, NOW + 600)).toHaveLength(1);
  });

  it('does not believe rows that were read before the newest task came', () => {
    const own = stream();
    lineup.note(own, 1, NOW);
    const [band] = taken(1);
    const { notes } = band!;
    lineup.note(own, 1, NOW);
    lineup.correct(band!, null, NOW, notes);
    expect(taken(1)).toEqual([band]);
  });

  it('of a stale answer about a band that has left and come back changes nothing', () => {
    const own = stream();
    lineup.note(own, 1, NOW);
    const [first] = taken(1);
    lineup.correct(first!, null, NOW, first!.notes);
    lineup.note(own, 1, NOW);
    lineup.correct(first!, null, NOW, first!.notes);
    expect(taken(1)).toHaveLength(1);
  });
});

describe('what is set aside', () => {
  const looked: string[] = [];
  /** Holds back everybody but `free`, until then. */
  const until = (untilAt: number) => (band: Band) => {
    looked.push(band.stream.owner);
    return band.stream.owner === 'free' ? 1 : { untilAt };
  };
  beforeEach(() => {
    looked.length = 0;
    for (const owner of ['held1', 'held2', 'free']) lineup.note(stream({ owner }), 1, NOW);
  });

  it('is not looked at again before its time, not even when more tasks come into it', () => {
    const own = stream({ owner: 'own' });
    lineup.note(own, 1, NOW);
    const all = (untilAt: number) => (band: Band) => {
      looked.push(band.stream.owner);
      return { untilAt };
    };
    expect(lineup.next([QUEUE], turns, NOW, all(NOW + 500))).toBeUndefined();
    expect(looked.sort()).toEqual(['free', 'held1', 'held2', 'own']);
    lineup.note(own, 1, NOW - 5);
    looked.length = 0;
    expect(lineup.next([QUEUE], turns, NOW + 499, all(NOW + 900))).toBeUndefined();
    expect(looked).toEqual([]);
    expect(lineup.next([QUEUE], turns, NOW + 500, all(NOW + 900))).toBeUndefined();
    expect(looked.sort()).toEqual(['free', 'held1', 'held2', 'own']);
    expect(lineup.nextAt).toBe(NOW + 900);
  });

  it('hides nothing that stands behind it, however much it is', () => {
    for (let n = 0; n < 12_000; n += 1) lineup.note(stream({ owner: `more${n}` }), 1, NOW - 1);
    expect(lineup.next([QUEUE], turns, NOW, until(NOW + 500))?.band.stream.owner).toBe('free');
  });

  it('comes back with `recall`, in its old age', () => {
    lineup.next([QUEUE], turns, NOW, until(Number.POSITIVE_INFINITY));
    expect(lineup.nextAt).toBe(Number.POSITIVE_INFINITY);
    lineup.recall();
    const bands = taken(3, anyNumber, NOW + 5);
    expect(new Set(bands.map((band) => band.stream.owner))).toEqual(new Set(['held1', 'held2', 'free']));
    expect(bands.map((band) => band.headAt)).toEqual([NOW, NOW, NOW]);
  });

  it('leaves when the rows say that it is empty, and still counts as due until then', () => {
    lineup.next([QUEUE], turns, NOW, until(Number.POSITIVE_INFINITY));
    expect([...lineup.due(NOW)]).toHaveLength(3);
    const band = lineup.bandsOf(QUEUE).find(({ stream: { owner } }) => owner === 'held1')!;
    expect(band.place).toBe('aside');
    lineup.correct(band, null, NOW, band.notes);
    lineup.recall();
    expect(lineup.size).toBe(2);
  });

  it('is no ready work for agents that wait', () => {
    expect(lineup.hasReady([QUEUE])).toBe(false);
    lineup.next([QUEUE], turns, NOW, () => 0);
    expect([lineup.hasReady([QUEUE]), lineup.hasReady(['other/shell'])]).toEqual([true, false]);
    lineup.next([QUEUE], turns, NOW, () => ({ untilAt: NOW + 1 }));
    expect(lineup.hasReady([QUEUE])).toBe(false);
  });
});

it('a heap gives equal items in the order in which they came', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(3)), (numbers) => {
      const heap = new Heap<{ at: number; order: number }>();
      const items = numbers.map((at, order) => ({ at, order }));
      for (const item of items) heap.push(item.at, item);
      const sorted = [...items].sort((a, b) => a.at - b.at || a.order - b.order);
      expect(items.map(() => heap.pop())).toEqual(sorted);
    }),
  );
});

it('a heap gives its items in the order of their numbers', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.integer(), fc.boolean())), (steps) => {
      const heap = new Heap<number>();
      const model: number[] = [];
      for (const [at, pop] of steps) {
        if (!pop) {
          heap.push(at, at);
          model.push(at);
          continue;
        }
        model.sort((a, b) => a - b);
        expect(heap.first).toBe(model[0] ?? Number.POSITIVE_INFINITY);
        expect(heap.pop()).toBe(model.shift());
        expect(heap.size).toBe(model.length);
      }
    }),
  );
});
