import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { TemplateLimits } from '../../src/tasks/gates.ts';
import { type Band, Lineup, type Turns } from '../../src/tasks/lineup.ts';
import type { Start } from '../../src/tasks/ring.ts';
import type { Stream } from '../../src/tasks/streams.ts';
import { Core, newTask } from '../support/core.ts';

/** Very many owners behind one limit that is full. */

const NOW = 1_800_000_000_000;
const QUEUE = 'default/shell';
const OWNERS = 20_000;

describe('the line in memory', () => {
  let lineup: Lineup;
  let turns: Turns;
  let looks: number;
  let full: Set<string>;
  beforeEach(() => {
    lineup = new Lineup();
    turns = { credit: [0, 0, 0] };
    looks = 0;
    full = new Set();
  });

  let nextId = 1;
  const note = (owner: string, template: string, lane = 'main') => {
    nextId += 1;
    const stream: Stream = { id: nextId, queue: QUEUE, owner, template, lane, serial: '' };
    lineup.note(stream, 1, NOW - 1_000_000 + nextId);
    return stream;
  };
  const mayStart = (band: Band): Start => {
    looks += 1;
    return full.has(band.stream.template) ? 'crowded' : 1;
  };
  const next = () => lineup.next([QUEUE], turns, NOW, mayStart)?.band;
  const take = () => {
    const band = next();
    if (band) lineup.take(band);
    return band;
  };

  it('one look finds the one owner that may start behind all of them, and looks at one of the crowd', () => {
    for (let n = 0; n < OWNERS; n += 1) note(`held${n}`, 'full');
    note('free', 'other');
    full.add('full');
    expect(next()?.stream.owner).toBe('free');
    expect(looks).toBe(2);
    looks = 0;
    for (let n = 0; n < 100; n += 1) expect(take()?.stream.owner).toBe('free');
    expect(looks).toBe(200);
  });

  it('each of them gets its start, in the order in which they came, and every start costs a few looks', () => {
    for (let n = 0; n < OWNERS; n += 1) note(`held${n}`, 'full');
    full.add('full');
    expect(next()).toBeUndefined();
    looks = 0;
    const order: string[] = [];
    while (order.length < OWNERS) {
      full.delete('full');
      const band = take()!;
      order.push(band.stream.owner);
      lineup.correct(band, null, NOW, band.notes);
      full.add('full');
      expect(next()).toBeUndefined();
    }
    expect(order).toEqual(Array.from({ length: OWNERS }, (_, n) => `held${n}`));
    expect(looks).toBeLessThanOrEqual(2 * OWNERS + 2);
    expect(lineup.hasReady([QUEUE])).toBe(false);
  });

  it('an agent that waits may hope for them: any report may free the limit', () => {
    for (let n = 0; n < 10; n += 1) note(`held${n}`, 'full');
    full.add('full');
    expect(next()).toBeUndefined();
    expect(lineup.hasReady([QUEUE])).toBe(true);
  });

  it('an owner that is held back for itself does not stop the crowd that stands behind it', () => {
    for (let n = 0; n < 10; n += 1) note(`held${n}`, 'full');
    full.add('full');
    expect(next()).toBeUndefined();
    full.clear();
    const found = lineup.next([QUEUE], turns, NOW, ({ stream }) => (stream.owner === 'held0' ? 0 : 1));
    expect(found?.band.stream.owner).toBe('held1');
    lineup.take(found!.band);
    expect([take(), take()].map((band) => band?.stream.owner)).toEqual(['held0', 'held2']);
  });

  it('while facts are missing, few are asked about and nobody loses a place', () => {
    for (let n = 0; n < OWNERS; n += 1) note(`o${n}`, `t${n % 3}`);
    let asked = 0;
    const unsure = (): Start => {
      asked += 1;
      return 'unsure';
    };
    expect(lineup.next([QUEUE], turns, NOW, unsure)).toBeUndefined();
    expect(asked).toBeLessThanOrEqual(32);
    expect([take(), take(), take()].map((band) => band?.stream.owner)).toEqual(['o0', 'o1', 'o2']);
  });

  it('whatever limits fill and free, nobody is forgotten: what may start is found, and owners of one group have turns', () => {
    const steps = fc.array(
      fc.oneof(
        fc.record({ act: fc.constant('note' as const), owner: fc.nat(5), template: fc.nat(3) }),
        fc.record({ act: fc.constant('flip' as const), template: fc.nat(3) }),
        fc.record({ act: fc.constant('take' as const) }),
        fc.record({ act: fc.constant('empty' as const) }),
      ),
      { maxLength: 60 },
    );
    fc.assert(
      fc.property(steps, (todo) => {
        lineup = new Lineup();
        turns = { credit: [0, 0, 0] };
        full = new Set();
        const streams = new Map<string, Stream>();
        const present = new Set<Stream>();
        for (const step of todo) {
          if (step.act === 'note') {
            const key = `${step.owner}/${step.template}`;
            const known = streams.get(key);
            if (known) lineup.note(known, 1, NOW - 1);
            const stream = known ?? note(`${step.owner}`, `${step.template}`);
            streams.set(key, stream);
            present.add(stream);
          } else if (step.act === 'flip') {
            if (!full.delete(`${step.template}`)) full.add(`${step.template}`);
          } else {
            const band = take();
            const able = [...present].filter(({ template }) => !full.has(template));
            expect(band === undefined).toBe(able.length === 0);
            if (band) expect(able).toContain(band.stream);
            if (band && step.act === 'empty') {
              lineup.correct(band, null, NOW, band.notes);
              present.delete(band.stream);
            }
          }
        }
        full.clear();
        const left = new Set<Stream>();
        for (let band = take(); band; band = take()) {
          left.add(band.stream);
          lineup.correct(band, null, NOW, band.notes);
        }
        expect(left).toEqual(present);
      }),
      { numRuns: 300 },
    );
  });
});

describe('claims over real rows', () => {
  let core: Core;
  let limits: Map<string, TemplateLimits>;
  beforeEach(async () => {
    limits = new Map([['full', { concurrency: 2, rate: null }]]);
    core = await Core.open({ gates: { limitsOf: (template) => limits.get(template) } });
  });
  afterEach(() => core.close());

  it('6,000 owners behind a full limit hide nobody and are not forgotten: each report lets the next of them start', async () => {
    const held = await core.createAll(
      Array.from({ length: 6_000 }, (_, n) => newTask({ template: 'full', sessionKey: `agent:main:web:direct:${n}` })),
    );
    const running = await core.claimAll('a1', { max: 10 });
    expect(running.map(({ taskId }) => taskId)).toEqual(held.slice(0, 2).map(({ id }) => id));
    const free = await core.create({ template: 'other', sessionKey: 'agent:main:web:direct:free' });
    expect((await core.claim()).taskId).toBe(free);
    for (let n = 2; n < 40; n += 1) {
      await core.tell(running.shift()!, { type: 'succeeded', summary: 'ok' });
      const grants = await core.claimAll('a1', { max: 10 });
      expect(grants.map(({ taskId }) => taskId)).toEqual([held[n]!.id]);
      running.push(...grants);
    }
  }, 60_000);
});
