import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { classify, retryAfterMs, ruleFor } from '../../src/tasks/classify.ts';
import { ERROR_CLASSES } from '../../src/tasks/run-words.ts';

describe('without rules of the template', () => {
  it.each([
    [{ exitCode: 75 }, 'transient'],
    [{ exitCode: 76 }, 'rate_limited'],
    [{ exitCode: 1 }, 'permanent'],
    [{ httpStatus: 429 }, 'rate_limited'],
    [{ httpStatus: 408 }, 'transient'],
    [{ httpStatus: 500 }, 'transient'],
    [{ httpStatus: 503 }, 'transient'],
    [{ httpStatus: 501 }, 'permanent'],
    [{ httpStatus: 404 }, 'permanent'],
    [{ httpStatus: 302 }, 'permanent'],
    [{ errorType: 'ECONNRESET' }, 'transient'],
    [{ errorType: 'TimeoutError' }, 'transient'],
    [{ errorType: 'ENOTFOUND' }, 'permanent'],
    [{}, 'permanent'],
  ] as const)('%o is %s', (facts, expected) => {
    expect(classify(facts)).toBe(expected);
  });

  it('the answer of the other side tells more than an exit code', () => {
    expect(classify({ exitCode: 1, httpStatus: 429 })).toBe('rate_limited');
    expect(classify({ exitCode: 75, httpStatus: 400 })).toBe('transient');
  });
});

describe('the template’s rules', () => {
  const rules = {
    exit: { 3: 'transient', 75: 'permanent' },
    http: { '4xx': 'transient', 404: 'permanent', 429: 'permanent' },
    error: { ENOTFOUND: 'transient', ECONNRESET: 'permanent' },
  } as const;

  it.each([
    [{ exitCode: 3 }, 'transient'],
    [{ exitCode: 75 }, 'permanent'],
    [{ exitCode: 76 }, 'rate_limited'],
    [{ httpStatus: 404 }, 'permanent'],
    [{ httpStatus: 403 }, 'transient'],
    [{ httpStatus: 429 }, 'permanent'],
    [{ httpStatus: 502 }, 'transient'],
    [{ errorType: 'ENOTFOUND' }, 'transient'],
    [{ errorType: 'ECONNRESET' }, 'permanent'],
  ] as const)('go before the general ones: %o is %s', (facts, expected) => {
    expect(classify(facts, rules)).toBe(expected);
  });

  it('say nothing where none fits, and names of the prototype have no rule', () => {
    expect(ruleFor({ httpStatus: 500, exitCode: 1 }, rules)).toBeUndefined();
    for (const errorType of ['constructor', '__proto__', 'toString', ''])
      expect([ruleFor({ errorType }, rules), classify({ errorType }, rules)]).toEqual([undefined, 'permanent']);
  });

  it('whatever is known, there is a class', () => {
    const facts = fc.record(
      { exitCode: fc.integer(), httpStatus: fc.integer(), errorType: fc.string() },
      { requiredKeys: [] },
    );
    fc.assert(fc.property(facts, (some) => void expect(ERROR_CLASSES).toContain(classify(some, rules))));
  });
});

describe('A17: Retry-After', () => {
  const now = Date.UTC(2026, 4, 4, 8, 0, 0);

  it.each([
    ['120', 120_000],
    [' 0 ', 0],
    ['Mon, 04 May 2026 08:02:00 GMT', 120_000],
    ['Monday, 04-May-26 08:02:00 GMT', 120_000],
    ['Mon May  4 08:02:00 2026', 120_000],
    ['Mon, 04 May 2026 07:59:00 GMT', 0],
  ])('%s is a pause of %i ms', (header, expected) => {
    expect(retryAfterMs(header, now)).toBe(expected);
  });

  it.each(['', 'soon', '-1', '1.5', '12 s', '2026-05-04', 'Mon, 04 May 2026', '1'.repeat(400)])(
    '%j is none',
    (header) => {
      expect(retryAfterMs(header, now)).toBeUndefined();
    },
  );
});
