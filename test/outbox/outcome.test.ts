import { describe, expect, it } from 'vitest';
import type { SendOutcome } from '../../src/channels/channel.ts';
import { ChannelPace } from '../../src/outbox/channel-pace.ts';
import { LEASE_MS, type LeasedMessage } from '../../src/outbox/leases.ts';
import { SAFE_REPEATS, settlementOf, settlementOfAbandoned } from '../../src/outbox/outcome.ts';
import { route } from './rig.ts';

const NOW = 1_000_000;
const message = (more: Partial<LeasedMessage> = {}): LeasedMessage => ({
  id: 1,
  fence: 1,
  channel: 'telegram',
  account: 'default',
  chat: '1',
  route: route('1'),
  kind: 'final',
  text: 'text',
  maybeRepeat: false,
  safeRepeats: 0,
  giveUpAt: NOW + 1_000_000,
  leaseUntil: NOW + LEASE_MS,
  partsSent: 0,
  platformIds: [],
  ...more,
});
const ended = (outcome: SendOutcome, more: Partial<LeasedMessage> = {}, advanced = false) =>
  settlementOf(message(more), { outcome, partsSent: 0, platformIds: [], advanced }, NOW, () => 0.5);
const lost = (safe: boolean): SendOutcome => ({ outcome: 'unknown', error: 'cut', safe });
const retry = (afterMs?: number): SendOutcome => ({ outcome: 'retry', error: 'busy', scope: 'channel', afterMs });

describe('the pause before the next try', () => {
  it.each([
    [30_000, 30_000],
    [0, 500],
    [10 ** 12, 86_400_000],
    [undefined, 500],
  ])('asked for %o ms it is %i ms', (asked, pause) => {
    expect(ended(retry(asked)).nextAt).toBe(NOW + pause);
  });

  it('grows to five minutes and no further', () => {
    const pauses = [1, 2, 3, 8, 10, 11, 500].map((fence) => ended(retry(), { fence }).nextAt - NOW);
    expect(pauses).toEqual([500, 1_000, 2_000, 64_000, 256_000, 300_000, 300_000]);
  });

  it('is also the chat’s pause when the platform says so', () => {
    expect(ended({ outcome: 'retry', error: 'busy', scope: 'chat', afterMs: 9_000 }).hold).toEqual({
      until: NOW + 9_000,
    });
    expect(ended(retry()).hold).toBeUndefined();
  });
});

describe('a lost answer', () => {
  it.each([
    ['final', false, {}, { status: 'pending', maybeRepeat: true, safeRepeats: 0 }],
    ['final', false, { maybeRepeat: true }, { status: 'unknown', maybeRepeat: true }],
    ['final', true, {}, { status: 'pending', maybeRepeat: false, safeRepeats: 1 }],
    ['final', true, { safeRepeats: SAFE_REPEATS }, { status: 'pending', maybeRepeat: true }],
    ['reply', true, { safeRepeats: SAFE_REPEATS }, { status: 'unknown' }],
    ['update', true, {}, { status: 'pending', safeRepeats: 1 }],
    ['update', false, {}, { status: 'unknown' }],
    ['notice', false, {}, { status: 'unknown' }],
  ] as const)('of a %s (safe: %o, %o) leads to %o', (kind, safe, more, expected) => {
    expect(ended(lost(safe), { kind, ...more })).toMatchObject(expected);
  });

  it('of a later part counts for that part only', () => {
    expect(ended(lost(false), { maybeRepeat: true }, true)).toMatchObject({ status: 'pending', maybeRepeat: true });
  });
});

describe('a dead sender', () => {
  const abandoned = (windowMs: number, agoMs: number) =>
    settlementOfAbandoned(message({ leaseUntil: NOW - agoMs + LEASE_MS }), windowMs, NOW);

  it('leaves a verbatim repeat as long as the platform surely remembers, then a marked one', () => {
    expect(abandoned(600_000, 539_999)).toMatchObject({
      status: 'pending',
      maybeRepeat: false,
      safeRepeats: 1,
      nextAt: NOW,
    });
    expect(abandoned(600_000, 540_000)).toMatchObject({
      status: 'pending',
      maybeRepeat: true,
      safeRepeats: 0,
      nextAt: NOW,
    });
    expect(abandoned(0, 1)).toMatchObject({ status: 'pending', maybeRepeat: true });
  });
});

describe('the pace of a channel', () => {
  it('one call that finds nobody may be a broken connection: the next one is made at once, alone, and tells', () => {
    const pace = new ChannelPace(() => 0.5);
    const [lostOne, running] = [pace.begin(), pace.begin()];
    pace.note(lost(false), lostOne, NOW);
    expect([pace.isHeld(NOW), pace.mayStart(NOW)]).toEqual([false, false]);
    pace.running = 0;
    expect(pace.mayStart(NOW)).toBe(true);
    pace.note({ outcome: 'sent', platformId: '1' }, running, NOW);
    pace.running = 9;
    expect(pace.mayStart(NOW)).toBe(true);
  });

  it('a failure among calls that succeed holds nobody, in whatever order they end', () => {
    const pace = new ChannelPace(() => 0.5);
    const [first, second, third] = [pace.begin(), pace.begin(), pace.begin()];
    pace.note(lost(false), first, NOW);
    pace.note({ outcome: 'sent', platformId: '1' }, second, NOW);
    pace.note(lost(false), third, NOW);
    expect([pace.isHeld(NOW), pace.mayStart(NOW)]).toEqual([false, true]);
  });

  it('failures of many calls at once are one failure; each one after it makes the pause longer', () => {
    const pace = new ChannelPace(() => 0.5);
    const together = Array.from({ length: 16 }, () => pace.begin());
    for (const wave of together) pace.note(retry(), wave, NOW);
    expect(pace.isHeld(NOW)).toBe(false);
    pace.note(lost(false), pace.begin(), NOW);
    expect(pace.heldUntil).toBe(NOW + 500);
    pace.note(lost(false), pace.begin(), NOW + 500);
    expect(pace.heldUntil).toBe(NOW + 1_500);
    expect([pace.isHeld(NOW + 1_499), pace.isHeld(NOW - 3_600_000)]).toEqual([true, false]);
  });

  it('the longest pause asked for counts, and a late success does not end it', () => {
    const pace = new ChannelPace(() => 0.5);
    pace.note(retry(30_000), 0, NOW);
    pace.note(retry(5_000), 0, NOW);
    pace.note({ outcome: 'sent', platformId: '1' }, 0, NOW + 10);
    expect([pace.mayStart(NOW + 29_999), pace.mayStart(NOW + 30_000)]).toEqual([false, true]);
  });

  it('after a failure one call at a time, after an answer as many as there are', () => {
    const pace = new ChannelPace(() => 0.5);
    pace.note(retry(), 0, NOW);
    pace.running = 1;
    expect(pace.mayStart(NOW + 2_000)).toBe(false);
    pace.note({ outcome: 'permanent', error: 'blocked', unreachable: true }, 0, NOW + 2_000);
    expect(pace.mayStart(NOW + 2_000)).toBe(true);
  });
});
