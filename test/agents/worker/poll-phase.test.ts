import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { PollPhase } from '../../../src/agents/worker/poll-phase.ts';
import type { FakeCall } from '../../support/fake-gateway.ts';
import { until } from '../../support/until.ts';
import { type Rig, rig } from './rig.ts';

describe('the length of a long poll', () => {
  it('is spread over the interval after a start and after each failure, and the whole of it otherwise', () => {
    const first = Array.from({ length: 1_000 }, () => new PollPhase().holdMs(8_000));
    expect(Math.max(...first)).toBeLessThanOrEqual(8_000);
    expect(Math.min(...first)).toBeGreaterThanOrEqual(800);
    // Any tenth of the interval has some of them, none has most.
    const tenths = Array.from({ length: 9 }, (_, n) => first.filter((ms) => Math.floor(ms / 800) === n + 1).length);
    expect(Math.min(...tenths)).toBeGreaterThan(50);
    expect(Math.max(...tenths)).toBeLessThan(200);
    const phase = new PollPhase(() => 0.5);
    expect(phase.holdMs(1_000)).toBe(550);
    phase.answered();
    expect(phase.holdMs(1_000)).toBe(1_000);
    phase.failed();
    expect(phase.holdMs(1_000)).toBe(550);
  });
});

describe('an agent', () => {
  let r: Rig;
  beforeEach(async () => {
    vi.spyOn(Math, 'random').mockReturnValue(0);
    r = await rig();
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    await r.close();
  });

  const waits = (call: FakeCall) => r.gateway.calls.filter((one) => one.call === call).map(({ body }) => body.waitMs);

  it('asks and beats at once, holds the first polls for a random time, and so after the gateway was away', async () => {
    await r.start();
    await until(() => r.gateway.count('heartbeat') >= 2 && r.gateway.count('pull') >= 2);
    expect(waits('heartbeat').slice(0, 2)).toEqual([160, 1_600]);
    expect(waits('pull').slice(0, 2)).toEqual([100, 1_000]);
    const heard = r.gateway.calls.length;
    await r.gateway.stop();
    await r.gateway.start();
    const since = (call: FakeCall) => r.gateway.calls.slice(heard).filter((one) => one.call === call);
    await until(() => since('heartbeat').length >= 2 && since('pull').length >= 2);
    expect(since('heartbeat')[0]!.body.waitMs).toBe(160);
    expect(since('pull')[0]!.body.waitMs).toBe(100);
  });
});
