import { describe, expect, it } from 'vitest';
import { manualClock, systemClock } from '../../src/clock.ts';
import { Poller, Sleeper } from '../../src/service.ts';
import { until } from '../support/until.ts';

const HOUR = 3_600_000;
const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('a sleep', () => {
  it('ends by itself, when woken, and when aborted', async () => {
    const sleeper = new Sleeper();
    await sleeper.sleep(1);
    const woken = sleeper.sleep(HOUR);
    sleeper.wake();
    await woken;
    const abort = new AbortController();
    const aborted = sleeper.sleep(HOUR, abort.signal);
    abort.abort();
    await aborted;
    await sleeper.sleep(HOUR, abort.signal);
  });

  it('a wake that comes first is not lost, and counts once', async () => {
    const sleeper = new Sleeper();
    sleeper.wake();
    sleeper.wake();
    await sleeper.sleep(HOUR);
    let over = false;
    const next = sleeper.sleep(HOUR).then(() => {
      over = true;
    });
    await turn();
    expect(over).toBe(false);
    sleeper.wake();
    await next;
  });

  it('leaves no timer and no listener behind', async () => {
    const sleeper = new Sleeper();
    const abort = new AbortController();
    for (let n = 0; n < 50; n += 1) {
      const sleep = sleeper.sleep(HOUR, abort.signal);
      sleeper.wake();
      await sleep;
    }
    const timers = process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
    expect(timers).toBeLessThan(50);
  });

  it('of more than a day is not over at once', async () => {
    const sleeper = new Sleeper();
    let over = false;
    const sleep = sleeper.sleep(40 * 86_400_000).then(() => {
      over = true;
    });
    await new Promise((resolve) => setTimeout(resolve, 10));
    expect(over).toBe(false);
    sleeper.wake();
    await sleep;
  });
});

describe('a poller', () => {
  it('runs rounds one after the other, never two at once', async () => {
    let running = 0;
    let most = 0;
    let rounds = 0;
    const poller = new Poller({
      runOnce: async () => {
        running += 1;
        most = Math.max(most, running);
        await turn();
        running -= 1;
        rounds += 1;
        return 0;
      },
      onError: () => 0,
    });
    await poller.start();
    await poller.start();
    await until(() => rounds > 20, 'rounds');
    await poller.stop();
    expect([most, running]).toEqual([1, 0]);
    const after = rounds;
    await turn();
    expect(rounds).toBe(after);
  });

  it('goes on at once when woken, also when that happens during a round', async () => {
    let rounds = 0;
    const poller: Poller = new Poller({
      runOnce: async () => {
        rounds += 1;
        if (rounds === 1) poller.wake();
        return HOUR;
      },
      onError: () => HOUR,
    });
    await poller.start();
    await until(() => rounds === 2, 'the round that was asked for meanwhile');
    poller.wake();
    await until(() => rounds === 3, 'the round that was asked for in the pause');
    await poller.stop();
  });

  it('counts failures in a row and survives them', async () => {
    const failures: number[] = [];
    let rounds = 0;
    const poller = new Poller({
      runOnce: async () => {
        rounds += 1;
        if (rounds % 4 !== 0) throw new Error('no');
        return 0;
      },
      onError: (_error, count) => {
        failures.push(count);
        return 0;
      },
    });
    await poller.start();
    await until(() => failures.length >= 6, 'failures');
    await poller.stop();
    expect(failures.slice(0, 6)).toEqual([1, 2, 3, 1, 2, 3]);
  });

  it('stopping aborts the round that is on, waits for it, may be repeated, and leaves it startable', async () => {
    let rounds = 0;
    let finished = 0;
    const poller = new Poller({
      runOnce: async (signal) => {
        rounds += 1;
        await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
        finished += 1;
        throw new Error('aborted');
      },
      onError: () => 0,
    });
    await poller.stop();
    for (const expected of [1, 2]) {
      await poller.start();
      await until(() => rounds === expected, 'a round');
      await Promise.all([poller.stop(), poller.stop()]);
      expect(finished).toBe(expected);
    }
  });
});

it('clocks: one tells the time, the other is told', () => {
  expect(Math.abs(systemClock.now() - Date.now())).toBeLessThan(1_000);
  const clock = manualClock(5);
  clock.advance(10);
  expect(clock.now()).toBe(15);
  clock.set(3);
  expect(clock.now()).toBe(3);
});
