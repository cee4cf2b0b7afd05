import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import {
  admission,
  afterCall,
  type Breaker,
  type BreakerSettings,
  type CallOutcome,
  callOutcome,
  callsWithin,
  closed,
  newBreaker,
  opened,
  withProbe,
  withSettings,
} from '../../src/tasks/breaker-state.ts';
import { RUN_OUTCOMES, type RunOutcome } from '../../src/tasks/run-words.ts';

const T = 1_800_000_000_000;
const SETTINGS: BreakerSettings = { name: 'psb', threshold: 0.5, windowMs: 60_000, minimum: 5, cooldownMs: 30_000 };

const call = (outcome: CallOutcome, more: { runId?: number; claimedAt?: number; error?: string } = {}) => ({
  runId: 1,
  claimedAt: T,
  error: null,
  outcome,
  ...more,
});

function having(outcomes: readonly CallOutcome[], settings: Partial<BreakerSettings> = {}, at = T): Breaker {
  let breaker = newBreaker({ ...SETTINGS, ...settings }, at);
  for (const outcome of outcomes) breaker = afterCall(breaker, call(outcome), at);
  return breaker;
}
const times = (count: number, outcome: CallOutcome): CallOutcome[] => Array.from({ length: count }, () => outcome);

describe('a closed breaker', () => {
  it('opens with the failure that reaches both the minimum and the threshold', () => {
    expect(having(times(4, 'failure')).state).toBe('closed');
    expect(having(times(5, 'failure'))).toMatchObject({
      state: 'open',
      reason: 'failure_rate',
      openedAt: T,
      untilAt: T + 30_000,
      buckets: [],
      changedAt: T,
    });
    expect(having([...times(6, 'success'), ...times(5, 'failure')]).state).toBe('closed');
    expect(having([...times(6, 'success'), ...times(6, 'failure')]).state).toBe('open');
  });

  it('compares the share as it is written: 3 of 30 reach 0.1', () => {
    const calls = [...times(27, 'success'), ...times(2, 'failure')] satisfies CallOutcome[];
    expect(having(calls, { threshold: 0.1 }).state).toBe('closed');
    expect(having([...calls, 'failure'], { threshold: 0.1 }).state).toBe('open');
    expect(having(times(7, 'failure'), { threshold: 1, minimum: 7 }).state).toBe('open');
  });

  it('counts neither a permanent error nor a rate limit nor a run that says nothing, and does not become another row', () => {
    const breaker = having(times(4, 'failure'));
    for (const outcome of ['up', 'busy', 'none'] as const)
      expect(afterCall(breaker, call(outcome), T + 1)).toBe(breaker);
  });

  it('forgets calls when they leave the window, a tenth of it at a time, and keeps no more than ten tenths', () => {
    let breaker = newBreaker(SETTINGS, T);
    for (let tenth = 0; tenth < 25; tenth += 1) breaker = afterCall(breaker, call('success'), T + tenth * 6_000);
    expect(breaker.buckets).toHaveLength(10);
    expect(callsWithin(breaker, T + 24 * 6_000)).toEqual({ calls: 10, failures: 0 });
    expect(callsWithin(breaker, T + 29 * 6_000)).toEqual({ calls: 5, failures: 0 });
    expect(callsWithin(breaker, T + 34 * 6_000)).toEqual({ calls: 0, failures: 0 });
    const old = having(times(4, 'failure'));
    expect(afterCall(old, call('failure'), T + 53_999).state).toBe('open');
    expect(afterCall(old, call('failure'), T + 60_000).state).toBe('closed');
  });

  it('drops counts of a future that a clock set back has taken away', () => {
    const breaker = afterCall(having(times(4, 'failure')), call('failure'), T - 3_600_000);
    expect(breaker.state).toBe('closed');
    expect(callsWithin(breaker, T - 3_600_000)).toEqual({ calls: 1, failures: 1 });
  });

  it('keeps the last error, cut and well-formed', () => {
    const error = `${'x'.repeat(499)}😀 and more`;
    expect(afterCall(newBreaker(SETTINGS, T), call('failure', { error }), T + 5)).toMatchObject({
      lastError: `${'x'.repeat(499)}\uFFFD`,
      lastFailureAt: T + 5,
    });
  });
});

describe('an open breaker', () => {
  const open = having(times(5, 'failure'));

  it('lets nobody through to the millisecond in which its cooldown is over, then one probe', () => {
    expect(admission(open, T + 29_999)).toEqual({ state: 'open', untilAt: T + 30_000, reason: 'failure_rate' });
    expect(admission(open, T + 30_000)).toEqual({ state: 'half_open', probeFree: true });
  });

  it('is not moved by runs that began before it opened', () => {
    for (const outcome of ['success', 'failure', 'up', 'busy', 'none'] as const)
      expect(afterCall(open, call(outcome), T + 1)).toBe(open);
  });

  it('waits twice as long at most where the clock is set back', () => {
    expect(admission(open, T - 29_000).state).toBe('open');
    expect(admission(open, T - 30_001)).toEqual({ state: 'half_open', probeFree: true });
    const byHand = opened(open, 'operator', 7_200_000, T);
    expect(admission(byHand, T - 7_000_000).state).toBe('open');
    expect(admission(byHand, T - 7_200_001).state).toBe('half_open');
  });
});

describe('a half-open breaker', () => {
  const at = T + 30_000;
  const probing = withProbe(having(times(5, 'failure')), 77, at);
  const ends = (outcome: CallOutcome, more: { runId?: number; claimedAt?: number; error?: string } = {}) =>
    afterCall(probing, call(outcome, { runId: 77, claimedAt: at, ...more }), at + 1_000);

  it('has one probe', () => {
    expect(probing).toMatchObject({ state: 'half_open', probeRun: 77, probeUntilAt: at + 60_000, changedAt: at });
    expect(admission(probing, at)).toEqual({ state: 'half_open', probeFree: false });
  });

  it('closes with a success, and with a permanent error: the service is up', () => {
    for (const outcome of ['success', 'up'] as const)
      expect(ends(outcome)).toEqual({
        ...closed(probing, at + 1_000),
        state: 'closed',
        openedAt: null,
        untilAt: null,
        reason: null,
        probeRun: null,
        probeUntilAt: null,
        changedAt: at + 1_000,
      });
  });

  it('opens again for a cooldown with a failure or a rate limit', () => {
    const again = { state: 'open', openedAt: at + 1_000, untilAt: at + 31_000, probeRun: null, probeUntilAt: null };
    expect(ends('failure', { error: 'refused' })).toMatchObject({
      ...again,
      reason: 'probe_failed',
      lastError: 'refused',
      lastFailureAt: at + 1_000,
    });
    expect(ends('busy')).toMatchObject({ ...again, reason: 'probe_rate_limited', lastError: null });
  });

  it('frees the place when the probe ends without a word about the service', () => {
    const freed = ends('none');
    expect(freed).toMatchObject({ state: 'half_open', probeRun: null });
    expect(admission(freed, at + 1_000)).toEqual({ state: 'half_open', probeFree: true });
  });

  it('frees the place when the probe takes too long, when it is over unheard, and when the clock is set back', () => {
    expect(admission(probing, at + 59_999)).toEqual({ state: 'half_open', probeFree: false });
    expect(admission(probing, at + 60_000)).toEqual({ state: 'half_open', probeFree: true });
    expect(admission(probing, at, true)).toEqual({ state: 'half_open', probeFree: true });
    expect(admission(probing, at - 60_001)).toEqual({ state: 'half_open', probeFree: true });
    const slow = withProbe(having(times(5, 'failure'), { cooldownMs: 600_000 }), 77, at);
    expect(admission(slow, at + 599_999)).toEqual({ state: 'half_open', probeFree: false });
  });

  it('takes the word of an earlier probe that took too long, and not of runs from before it opened', () => {
    const second = withProbe(probing, 78, at + 60_000);
    const late = (outcome: CallOutcome) => afterCall(second, call(outcome, { runId: 77, claimedAt: at }), at + 70_000);
    expect(late('success').state).toBe('closed');
    expect(late('failure').state).toBe('open');
    expect(late('none')).toBe(second);
    for (const outcome of ['success', 'failure', 'up', 'busy', 'none'] as const)
      expect(ends(outcome, { runId: 5, claimedAt: T })).toBe(probing);
  });
});

test('other settings count from the next outcome on; another window starts anew', () => {
  const breaker = having(times(4, 'failure'));
  expect(withSettings(breaker, SETTINGS)).toBe(breaker);
  expect(withSettings(breaker, { ...SETTINGS, minimum: 3 })).toMatchObject({ minimum: 3, buckets: breaker.buckets });
  expect(withSettings(breaker, { ...SETTINGS, windowMs: 10_000 })).toMatchObject({ windowMs: 10_000, buckets: [] });
});

test.each<[RunOutcome, 'transient' | 'rate_limited' | 'permanent' | null, boolean, CallOutcome]>([
  ['succeeded', null, false, 'success'],
  ['succeeded', null, true, 'success'],
  ['failed', 'transient', false, 'failure'],
  ['failed', 'rate_limited', false, 'busy'],
  ['failed', 'permanent', false, 'up'],
  ['failed', 'transient', true, 'none'],
  ['timed_out', 'transient', false, 'failure'],
  ['timed_out', null, true, 'none'],
  ['cancelled', null, true, 'none'],
  ['lost', 'transient', false, 'none'],
  ['released', null, false, 'none'],
  ['blocked', null, false, 'none'],
  ['needs_input', null, false, 'none'],
])('a run that ended as %s (%s; cancelled: %s) says: %s', (outcome, errorClass, cancelled, said) => {
  expect(RUN_OUTCOMES).toContain(outcome);
  expect(callOutcome(outcome, errorClass, cancelled)).toBe(said);
});

test('A69: whatever happens in whatever order, the breaker is never wedged', () => {
  const step = fc.record({
    act: fc.constantFrom<'probe' | CallOutcome>('probe', 'success', 'failure', 'up', 'busy', 'none'),
    run: fc.integer({ min: 1, max: 4 }),
    passMs: fc.integer({ min: -200_000, max: 200_000 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      let breaker = newBreaker({ ...SETTINGS, minimum: 2 }, T);
      let now = T;
      const claimedAt = new Map<number, number>();
      for (const { act, run, passMs } of steps) {
        now += passMs;
        const seen = admission(breaker, now);
        if (act === 'probe') {
          if (seen.state === 'half_open' && seen.probeFree) {
            breaker = withProbe(breaker, run, now);
            claimedAt.set(run, now);
          }
        } else
          breaker = afterCall(
            breaker,
            { runId: run, claimedAt: claimedAt.get(run) ?? 0, outcome: act, error: null },
            now,
          );
        const isClosed = breaker.state === 'closed';
        expect([breaker.openedAt === null, breaker.untilAt === null, breaker.reason === null]).toEqual(
          Array(3).fill(isClosed),
        );
        expect(breaker.probeRun === null || breaker.state === 'half_open').toBe(true);
        expect(breaker.buckets.length).toBeLessThanOrEqual(10);
      }
      const isWayOpen = Array.from({ length: 25 }, (_, n) => admission(breaker, now + n * 5_000)).some(
        (later) => later.state === 'closed' || (later.state === 'half_open' && later.probeFree),
      );
      expect(isWayOpen).toBe(true);
    }),
    { numRuns: 500 },
  );
});
