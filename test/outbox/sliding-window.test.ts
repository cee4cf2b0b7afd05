import fc from 'fast-check';
import { expect, it } from 'vitest';
import { freeAt, parseUsed, type Used, withCall } from '../../src/outbox/sliding-window.ts';

const LIMITS = [
  { max: 3, windowMs: 3_000 },
  { max: 20, windowMs: 60_000 },
];

it('however the calls are spread, no window ever holds more than its limit, and the wait ends within a step of when it must', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 5_000 }), { minLength: 1, maxLength: 120 }), (gaps) => {
      let used: Used = {};
      let now = 1_800_000_000_000;
      const made: number[] = [];
      for (const gap of gaps) {
        now = Math.max(now + gap, freeAt(used, LIMITS, now + gap));
        used = parseUsed(JSON.stringify(withCall(used, LIMITS, now)));
        made.push(now);
      }
      for (const { max, windowMs } of LIMITS) {
        for (const end of made)
          expect(made.filter((at) => at <= end && at > end - windowMs).length).toBeLessThanOrEqual(max);
      }
    }),
  );
});

it('a full window is free again within a sixtieth of its length, and not a moment before', () => {
  const [limit] = [{ max: 20, windowMs: 60_000 }];
  let used: Used = {};
  const start = 1_800_000_000_001;
  for (let n = 0; n < 20; n += 1) used = withCall(used, [limit], start);
  const free = freeAt(used, [limit], start + 5);
  expect(free).toBeGreaterThanOrEqual(start + 60_000);
  expect(free).toBeLessThanOrEqual(start + 61_000);
  expect(freeAt(used, [limit], free)).toBe(free);
});

it('what a busy window remembers stays small', () => {
  const limit = { max: 1_000, windowMs: 3_600_000 };
  let used: Used = {};
  for (let n = 0; n < 5_000; n += 1) used = withCall(used, [limit], 1_800_000_000_000 + n * 3_600);
  expect(used[limit.windowMs]!.length).toBeLessThanOrEqual(62);
});

it('calls of a clock that was set back do not count, else nothing would go for as long as it was set back', () => {
  let used: Used = {};
  for (let n = 0; n < 3; n += 1) used = withCall(used, LIMITS, 2_000_000);
  expect(freeAt(used, LIMITS, 2_000_000)).toBeGreaterThan(2_000_000);
  expect(freeAt(used, LIMITS, 1_000_000)).toBe(1_000_000);
});
