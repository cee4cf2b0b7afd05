import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type Decision,
  decide,
  HAND_BACK_LIMITS,
  MAX_UNSTARTED_LOSSES,
  POSTPONE_LIMITS,
  type RunEnd,
  type TaskFacts,
} from '../../src/tasks/decide.ts';
import { ERROR_CLASSES, ON_LOST } from '../../src/tasks/run-words.ts';
import {
  allows,
  defaultNotifyPolicy,
  FINAL_STATES,
  isFinal,
  isHeld,
  priorityNumber,
  TASK_STATES,
  TASK_VERBS,
  type TaskVerb,
} from '../../src/tasks/states.ts';

const facts = (more: Partial<TaskFacts> = {}): TaskFacts => ({
  attempt: 1,
  maxAttempts: 3,
  retry: null,
  cancelRequested: false,
  onLost: 'retry',
  started: true,
  unstartedLosses: 0,
  handBacks: 0,
  postponed: 0,
  postponedMs: 0,
  ttlLeftMs: null,
  ...more,
});
const failure = (errorClass: (typeof ERROR_CLASSES)[number], retryAfterMs: number | null = null): RunEnd => ({
  outcome: 'failed',
  errorClass,
  retryAfterMs,
});
const middle = () => 0.5;

const VERB_OF: Record<RunEnd['outcome'], TaskVerb> = {
  succeeded: 'succeed',
  failed: 'fail',
  timed_out: 'time_out',
  cancelled: 'confirm_cancel',
  released: 'release_lease',
  lost: 'expire',
  blocked: 'ask',
  needs_input: 'ask',
};
const anyEnd: fc.Arbitrary<RunEnd> = fc.oneof(
  fc.constantFrom<RunEnd>(
    { outcome: 'succeeded' },
    { outcome: 'timed_out' },
    { outcome: 'cancelled' },
    { outcome: 'released' },
    { outcome: 'lost' },
    { outcome: 'blocked' },
    { outcome: 'needs_input' },
  ),
  fc.record({
    outcome: fc.constant('failed' as const),
    errorClass: fc.constantFrom(...ERROR_CLASSES),
    retryAfterMs: fc.option(fc.nat(86_400_000)),
  }),
);
const anyFacts = fc.record({
  attempt: fc.nat(12),
  maxAttempts: fc.integer({ min: 1, max: 10 }),
  retry: fc.constant(null),
  cancelRequested: fc.boolean(),
  onLost: fc.constantFrom(...ON_LOST),
  started: fc.boolean(),
  unstartedLosses: fc.nat(12),
  handBacks: fc.nat(110),
  postponed: fc.nat(1_100),
  postponedMs: fc.nat(2 * 86_400_000),
  ttlLeftMs: fc.option(fc.integer({ min: -1_000, max: 86_400_000 })),
});

describe('whatever happens', () => {
  const forAll = (check: (end: RunEnd, task: TaskFacts, decision: Decision) => void) =>
    fc.assert(
      fc.property(
        anyEnd,
        anyFacts,
        fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
        (end, task, random) =>
          void check(
            end,
            task,
            decide(end, task, () => random),
          ),
      ),
      { numRuns: 2_000 },
    );

  it('a decision leads where the table of states allows', () => {
    forAll((end, _task, decision) =>
      expect(TASK_VERBS[VERB_OF[end.outcome]].to as readonly string[]).toContain(decision.to),
    );
  });

  it('once cancel is requested nothing is queued or waits, and only a success stays one', () => {
    forAll((end, task, decision) => {
      if (task.cancelRequested) expect(decision.to).toBe(end.outcome === 'succeeded' ? 'succeeded' : 'cancelled');
    });
  });

  it('a pause is never negative and only a queued task has one', () => {
    forAll((_end, _task, decision) => {
      expect(decision.delayMs).toBeGreaterThanOrEqual(0);
      if (decision.to !== 'queued') expect([decision.delayMs, decision.refund]).toEqual([0, false]);
    });
  });

  it('an execution that counts is never followed by more than the limit allows', () => {
    forAll((_end, task, decision) => {
      if (decision.to === 'queued' && !decision.refund) expect(task.attempt).toBeLessThan(task.maxAttempts);
    });
  });

  it('every end that is not a plain success has a reason', () => {
    forAll((end, task, decision) => {
      if (end.outcome !== 'succeeded' || task.cancelRequested) expect(decision.reason).toMatch(/^[a-z_]+$/);
      else expect(decision.reason).toBeNull();
    });
  });
});

it('transient failures are tried again after a growing pause until the executions are used up', () => {
  const delays = [1, 2, 3].map((attempt) => decide(failure('transient'), facts({ attempt }), middle));
  expect(delays.map(({ to, delayMs }) => [to, delayMs])).toEqual([
    ['queued', 1_000],
    ['queued', 2_000],
    ['failed', 0],
  ]);
  expect(delays[2]!.reason).toBe('attempts_used_up');
});

it('a failing program that names a time is not tried before it', () => {
  expect(decide(failure('transient', 90_000), facts(), middle).delayMs).toBe(90_000);
  expect(decide(failure('transient', 1), facts(), middle).delayMs).toBe(1_000);
});

it('A17: a rate limit waits for its time and spends no execution, at the limit too', () => {
  expect(decide(failure('rate_limited', 120_000), facts({ attempt: 3 }), middle)).toMatchObject({
    to: 'queued',
    delayMs: 120_000,
    refund: true,
  });
  expect(decide(failure('rate_limited'), facts(), middle)).toMatchObject({
    to: 'queued',
    delayMs: 30_000,
    refund: true,
  });
  // Never a hot loop, whatever the program says.
  expect(decide(failure('rate_limited', 0), facts(), middle).delayMs).toBe(1_000);
});

describe('what uses up no execution is counted, and bounded', () => {
  const limited = (more: Partial<TaskFacts>, retryAfterMs: number | null = 60_000) =>
    decide(failure('rate_limited', retryAfterMs), facts(more), middle);

  it('rate limits: so often', () => {
    expect(limited({ postponed: POSTPONE_LIMITS.count - 1 })).toMatchObject({ to: 'queued', setback: 'postponed' });
    expect(limited({ postponed: POSTPONE_LIMITS.count })).toMatchObject({
      to: 'failed',
      reason: 'rate_limited_too_long',
      setback: null,
    });
  });

  it('rate limits: for so long in sum', () => {
    const { totalMs } = POSTPONE_LIMITS;
    expect(limited({ postponedMs: totalMs - 60_000 }).to).toBe('queued');
    expect(limited({ postponedMs: totalMs - 59_999 })).toMatchObject({ to: 'failed', reason: 'rate_limited_too_long' });
    expect(limited({ postponedMs: totalMs - 29_999 }, null).to).toBe('failed');
    expect(limited({}, totalMs).to).toBe('queued');
  });

  it('rate limits: not to the end of the time to live or beyond', () => {
    expect(limited({ ttlLeftMs: 60_001 }).to).toBe('queued');
    for (const ttlLeftMs of [60_000, 0, -5])
      expect(limited({ ttlLeftMs })).toMatchObject({ to: 'failed', reason: 'rate_limited_too_long' });
  });

  it('leases that are lost before a program is said to run', () => {
    const lost = (more: Partial<TaskFacts>) =>
      decide({ outcome: 'lost' }, facts({ attempt: 0, started: false, ...more }));
    const last = MAX_UNSTARTED_LOSSES - 1;
    expect(lost({ unstartedLosses: last - 1 })).toMatchObject({ to: 'queued', delayMs: 0, setback: 'unstarted_loss' });
    expect(lost({ unstartedLosses: last })).toMatchObject({ to: 'lost', reason: 'never_started', delayMs: 0 });
    // One that had started is an execution, and counted as that.
    expect(lost({ unstartedLosses: last, started: true, attempt: 1 })).toMatchObject({ to: 'queued', setback: null });
  });
});

it('hand-backs: at once at first, then after a growing pause, and not for ever', () => {
  const back = (handBacks: number) => decide({ outcome: 'released' }, facts({ attempt: 1, handBacks }));
  const { free, count } = HAND_BACK_LIMITS;
  expect(back(free - 1)).toMatchObject({ to: 'queued', delayMs: 0, refund: true, setback: 'hand_back' });
  expect([free, free + 1, free + 2, count - 2].map((n) => back(n).delayMs)).toEqual([1_000, 2_000, 4_000, 300_000]);
  expect(back(count - 1)).toMatchObject({ to: 'failed', reason: 'handed_back_too_often', setback: 'hand_back' });
});

describe('onLost', () => {
  it.each([true, false])('ask waits for a person, whether its start was reported or not (%s)', (started) => {
    for (const attempt of [0, 1, 3])
      expect(decide({ outcome: 'lost' }, facts({ onLost: 'ask', started, attempt }))).toMatchObject({
        to: 'waiting',
        reason: 'lost_ask',
        delayMs: 0,
      });
  });

  it.each([true, false])('fail is lost at once, whether its start was reported or not (%s)', (started) => {
    expect(decide({ outcome: 'lost' }, facts({ onLost: 'fail', started, attempt: 0 }))).toMatchObject({
      to: 'lost',
      reason: 'lost_not_retried',
    });
  });

  it.each(ON_LOST)('%s: a cancel comes before it, and only a lost lease is meant', (onLost) => {
    expect(decide({ outcome: 'lost' }, facts({ onLost, cancelRequested: true }))).toMatchObject({ to: 'cancelled' });
    expect(decide(failure('transient'), facts({ onLost })).to).toBe('queued');
    expect(decide({ outcome: 'timed_out' }, facts({ onLost })).to).toBe('queued');
    expect(decide({ outcome: 'released' }, facts({ onLost })).to).toBe('queued');
  });
});

it('a permanent failure is final at once; a hand-back costs nothing; a lost agent says nothing against the work', () => {
  expect(decide(failure('permanent'), facts())).toMatchObject({ to: 'failed', reason: 'permanent_error' });
  expect(decide({ outcome: 'released' }, facts({ attempt: 3 }))).toMatchObject({
    to: 'queued',
    delayMs: 0,
    refund: true,
  });
  expect(decide({ outcome: 'lost' }, facts())).toMatchObject({ to: 'queued', delayMs: 0, refund: false });
  expect(decide({ outcome: 'lost' }, facts({ attempt: 3 }))).toMatchObject({ to: 'lost' });
  expect(decide({ outcome: 'timed_out' }, facts({ attempt: 3 }))).toMatchObject({ to: 'timed_out' });
});

it('the template’s own retry policy is used where it has one', () => {
  const retry = { max: 5, baseMs: 10, factor: 3, capMs: 50, jitter: 0 };
  expect(
    [1, 2, 3].map((attempt) => decide(failure('transient'), facts({ attempt, maxAttempts: 5, retry })).delayMs),
  ).toEqual([10, 30, 50]);
});

it('final and held are what the table says', () => {
  for (const state of TASK_STATES) {
    expect(isFinal(state)).toBe((FINAL_STATES as readonly string[]).includes(state));
    expect(isHeld(state)).toBe(allows('heartbeat', state));
  }
  expect((['high', 'normal', 'low'] as const).map(priorityNumber)).toEqual([0, 1, 2]);
  expect((['cron', 'chat', 'api'] as const).map(defaultNotifyPolicy)).toEqual(['silent', 'done_only', 'done_only']);
});
