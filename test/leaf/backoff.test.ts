import fc from 'fast-check';
import { expect, it } from 'vitest';
import { backoffMs, DEFAULT_BACKOFF } from '../../src/backoff.ts';

const CASE = { baseMs: 1_000, factor: 2, capMs: 300_000, jitter: 0.5 };

it('A16: nominal delays are 1 s, 16 s, and the cap from then on', () => {
  const nominal = [1, 2, 5, 9, 10, 20, 1_000].map((n) => backoffMs(CASE, n, () => 0.5));
  expect(nominal).toEqual([1_000, 2_000, 16_000, 256_000, 300_000, 300_000, 300_000]);
  expect(DEFAULT_BACKOFF).toEqual(CASE);
});

it('A16: 500 delays of the same moment are spread at every attempt, at the cap too, and never beyond cap × (1 + jitter)', () => {
  for (const attempt of [1, 5, 10, 20]) {
    const delays = Array.from({ length: 500 }, () => backoffMs(CASE, attempt));
    const nominal = backoffMs(CASE, attempt, () => 0.5);
    expect(Math.min(...delays)).toBeGreaterThanOrEqual(nominal * 0.5);
    expect(Math.max(...delays)).toBeLessThanOrEqual(nominal * 1.5);
    // Even halves, so that nobody falls in step: far from all on one side.
    const early = delays.filter((delay) => delay < nominal).length;
    expect(early).toBeGreaterThan(150);
    expect(early).toBeLessThan(350);
    if (nominal === 300_000)
      expect(new Set(delays.map((delay) => Math.floor(delay / 1_000))).size).toBeGreaterThan(100);
  }
});

it('a delay is a whole number of milliseconds within its bounds, whatever the policy', () => {
  const policy = fc.record({
    baseMs: fc.integer({ min: 0, max: 3_600_000 }),
    factor: fc.double({ min: 1, max: 10, noNaN: true }),
    capMs: fc.integer({ min: 0, max: 86_400_000 }),
    jitter: fc.double({ min: 0, max: 1, noNaN: true }),
  });
  fc.assert(
    fc.property(
      policy,
      fc.integer({ min: 0, max: 5_000 }),
      fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
      (some, n, random) => {
        const delay = backoffMs(some, n, () => random);
        expect(Number.isSafeInteger(delay)).toBe(true);
        expect(delay).toBeGreaterThanOrEqual(0);
        expect(delay).toBeLessThanOrEqual(Math.ceil(some.capMs * (1 + some.jitter)));
      },
    ),
  );
});

it('without jitter it grows with every repeat until the cap', () => {
  const delays = Array.from({ length: 30 }, (_, n) => backoffMs({ ...CASE, jitter: 0 }, n + 1));
  expect(delays).toEqual([...delays].sort((a, b) => a - b));
});
