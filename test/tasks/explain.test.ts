import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { explain } from '../../src/tasks/explain.ts';
import { type Crowd, placeAmong } from '../../src/tasks/explain-line.ts';
import { saidBy } from '../../src/tasks/explain-said.ts';
import { AGENT, factsWith, NOW, RUN, SAMPLES } from './explain-samples.ts';

describe('what a program said, without the values of its arguments', () => {
  it.each([
    ['no such room 302', { room: '302' }, 'no such room …'],
    ['no such room 3021', { room: '302' }, 'no such room 3021'],
    [
      'room=302: guest Ada Lovelace is not there',
      { room: 302, guest: 'Ada Lovelace', first: 'Ada' },
      'room=…: guest … is not there',
    ],
    ['ADA is not there', { guest: 'Ada' }, '… is not there'],
    ['找不到张三先生', { guest: '张三' }, '找不到…先生'],
    ['exit code 5', { n: 5 }, 'exit code …'],
    ['a.b is not axb', { file: 'a.b' }, '… is not axb'],
    ['it is true', { flag: true }, 'it is true'],
    ['nothing here', { empty: '', blank: '  ' }, 'nothing here'],
    ['--password=hunter2!', { password: 'hunter2!' }, '--password=…'],
    ['Traceback (most recent call last):\n  File "x"\nValueError: bad 302', { room: '302' }, 'ValueError: bad …'],
  ])('%s, %j', (text, args, told) => {
    expect(saidBy(text, args)).toBe(told);
  });

  it('no value is left as a word of its own, whatever it is, and the sentence is short', () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1, maxLength: 12 }), (value) => {
        fc.pre(value.trim() !== '');
        const said = saidBy(`before ${value} after, and ${value}`, { value });
        const rest = said.replace(/before|after|and|…|,/g, ' ');
        expect(rest.split(' ').join(' ')).not.toContain(` ${value} `);
      }),
    );
    expect(saidBy('x '.repeat(10_000), {}).length).toBeLessThanOrEqual(160);
    expect(saidBy(null, {})).toBe('');
  });

  it('a value that is cut off with the sentence is gone too', () => {
    const secret = 's'.repeat(50);
    expect(saidBy(`${'x '.repeat(70)}${secret} end`, { secret })).not.toContain('s');
  });
});

describe('the place in line', () => {
  const crowd = (owner: string, priority: number, count: number, before = 0): Crowd => ({
    owner,
    priority,
    count,
    before,
  });

  it.each([
    ['alone', [crowd('a', 1, 1)], 1, 1],
    ['third of its owner', [crowd('a', 1, 5, 2)], 3, 5],
    ['another owner has one turn before each of its own', [crowd('a', 1, 2, 1), crowd('b', 1, 50)], 4, 52],
    ['an owner with one task has one turn', [crowd('a', 1, 10, 9), crowd('b', 1, 1)], 11, 11],
    ['high ones have two turns for one', [crowd('a', 1, 1), crowd('b', 0, 50)], 3, 51],
    ['low ones have a third of its turns', [crowd('a', 1, 6, 5), crowd('b', 2, 50)], 8, 56],
    ['a high task is not behind normal ones', [crowd('a', 0, 1), crowd('b', 1, 50)], 1, 51],
    ['two lines of one owner are one', [crowd('a', 1, 3, 1), crowd('a', 1, 3, 2)], 4, 6],
  ])('%s', (_name, crowds, position, total) => {
    const priority = crowds[0]!.priority;
    expect(placeAmong({ owner: 'a', priority }, crowds)).toEqual({ position, total, isMore: false });
  });

  it('is not told where more than a hundred of its owner come before it', () => {
    expect(placeAmong({ owner: 'a', priority: 1 }, [crowd('a', 1, 100, 100)])).toEqual({
      position: null,
      total: 100,
      isMore: true,
    });
  });

  it('is said as people say it', () => {
    const say = (position: number) =>
      explain(factsWith({ place: { position, total: 200, isMore: false } })).text.en.replace(
        /^It is about (\w+) .*$/,
        '$1',
      );
    expect([2, 3, 4, 11, 12, 13, 21, 22, 23, 101, 111].map(say)).toEqual([
      '2nd',
      '3rd',
      '4th',
      '11th',
      '12th',
      '13th',
      '21st',
      '22nd',
      '23rd',
      '101st',
      '111th',
    ]);
  });
});

describe('of several causes', () => {
  const reasons = (more: Parameters<typeof factsWith>[0]) => {
    const { reason, others = [] } = explain(factsWith(more));
    return [reason, ...others.map((other) => other.reason)];
  };
  const full = { type: 'full', kind: 'lane', name: 'cron', limit: 1 } as const;
  const rate = { type: 'rate', template: 't', untilAt: NOW + 1_000 } as const;
  const open = { state: 'open', untilAt: NOW + 60_000, reason: 'failure_rate' } as const;
  const broken = { type: 'breaker', name: 'psb', admission: open } as const;
  const paused = { type: 'paused', kind: 'pool', name: 'default', reason: null } as const;

  it('persons come before times, the latest of these first, then others, then busy machines', () => {
    const busy = [{ ...AGENT, freeSlots: 0 }];
    expect(reasons({ holds: [full, rate, broken, paused], agents: busy })).toEqual([
      'pool_paused',
      'breaker_open',
      'start_rate',
      'lane_full',
      'machines_busy',
    ]);
    const away = [{ ...AGENT, online: false }];
    expect(reasons({ holds: [full, rate], agents: away })).toEqual(['machines_offline', 'start_rate', 'lane_full']);
  });

  it('a pause comes before the time of the start', () => {
    expect(reasons({ task: { runAt: NOW + 1_000 }, holds: [paused, full] })).toEqual(['pool_paused', 'scheduled']);
  });

  it('the later of two times decides', () => {
    const soon = { runAt: NOW + 1_000, reason: 'transient_error', attempt: 1 };
    expect(reasons({ task: soon, holds: [broken] })).toEqual(['breaker_open', 'retry_wait']);
    expect(reasons({ task: { ...soon, runAt: NOW + 61_000 }, holds: [broken] })).toEqual([
      'retry_wait',
      'breaker_open',
    ]);
  });

  it('one more is one more', () => {
    expect(explain(factsWith({ holds: [paused, full] })).text).toEqual({
      en: 'Errands of pool default are paused. There is 1 more reason.',
      zh: '机器池 default 的任务已暂停。另外还有 1 个原因。',
    });
  });

  it('where nothing would let it start there is always a sentence, whatever the facts', () => {
    fc.assert(
      fc.property(fc.subarray([full, rate, broken, paused]), fc.integer({ min: -1e6, max: 1e6 }), (holds, wait) => {
        const told = explain(factsWith({ holds, task: { runAt: NOW + wait } }));
        expect(told.text.en).toMatch(/\.$/);
        expect(told.reason === 'next').toBe(holds.length === 0 && wait <= 0);
      }),
    );
  });
});

it('a clock that was set back gives no sentence with a time of the past', () => {
  for (const sample of SAMPLES)
    for (const shift of [-3_600_000, 3_600_000]) {
      const { text, next } = explain({ ...factsWith(sample), now: NOW + shift });
      expect(`${text.en} ${next?.en ?? ''}`).not.toMatch(/ -\d|NaN/);
    }
});

it('a run that nobody could read is said to be starting', () => {
  expect(explain(factsWith({ task: { status: 'leased' } })).reason).toBe('starting');
  expect(explain(factsWith({ task: { status: 'running' }, run: RUN })).reason).toBe('running');
});

it('a row of an earlier version, without a reason or with one that nobody knows, still has a sentence', () => {
  for (const status of ['succeeded', 'failed', 'timed_out', 'cancelled', 'lost', 'waiting'] as const)
    for (const reason of [null, 'of_old'])
      expect(explain(factsWith({ task: { status, reason, endedAt: NOW } })).text.en).toMatch(/^\w.*\.( \(of_old\))?$/);
});
