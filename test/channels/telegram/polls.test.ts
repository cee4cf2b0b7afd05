import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, describe, expect, it } from 'vitest';
import { createTelegramChannel } from '../../../src/channels/telegram/channel.ts';
import { systemClock } from '../../../src/clock.ts';
import { silentLog } from '../../../src/log.ts';
import { until } from '../../support/until.ts';
import { FAST } from './rig.ts';

const cleanups: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Polls without an answer last until their time is over, so they are spread over several bots. */
const BOTS = 5;

/** A platform that cuts three polls of ten, leaves one without an answer, and answers the others; other methods work. */
async function badPlatform() {
  const seen = { polls: 0, open: new Set<Socket>(), mostOpen: 0 };
  const server = createServer((request, response) => {
    request.resume();
    const say = (result: unknown) =>
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ ok: true, result }));
    if (request.url!.endsWith('/getMe')) return say({ id: 1, is_bot: true, first_name: 'Bot', username: 'bot' });
    if (!request.url!.endsWith('/getUpdates')) return say(true);
    const kind = seen.polls % 10;
    seen.polls += 1;
    if (kind < 3) response.destroy();
    else if (kind > 3) say([]);
  });
  server.on('connection', (socket) => {
    seen.open.add(socket);
    seen.mostOpen = Math.max(seen.mostOpen, seen.open.size);
    socket.on('close', () => seen.open.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  return { seen, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

function botAt(apiRoot: string, index: number) {
  const rows = new Map<string, unknown>();
  return createTelegramChannel({
    token: `${index + 1}:secret`,
    account: `bot${index}`,
    apiRoot,
    mode: 'polling',
    port: {
      accept: async (batch) => batch.map(() => 'stored'),
      state: {
        get: async <T>(key: string) => rows.get(key) as T | undefined,
        set: async (key, value) => void rows.set(key, value),
      },
      lease: async () => true,
    },
    clock: systemClock,
    log: silentLog,
    timing: {
      ...FAST,
      pollMs: 10,
      pollMarginMs: 30,
      emptyPauseMs: 1,
      backoff: { baseMs: 1, factor: 1, capMs: 1, jitter: 0 },
    },
  });
}

/** What this process holds after everything unreachable is gone. */
function held(): { heapMb: number; timers: number } {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  return {
    heapMb: process.memoryUsage().heapUsed / 1024 / 1024,
    timers: process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length,
  };
}

describe('A68: two thousand polls of Telegram of which many are cut or never answered', () => {
  it('keep at most three sockets a bot, and leave no listeners, timers or memory behind', async () => {
    const warnings: string[] = [];
    const onWarning = (warning: Error) => warnings.push(warning.name);
    process.on('warning', onWarning);
    cleanups.push(() => process.off('warning', onWarning));
    const { seen, url } = await badPlatform();
    const bots = Array.from({ length: BOTS }, (_, index) => botAt(url, index));
    for (const bot of bots) {
      await bot.start();
      cleanups.push(() => bot.stop());
    }
    await until(() => seen.polls >= 500, '500 polls', 60_000);
    const early = held();
    await until(() => seen.polls >= 2_000, '2,000 polls', 120_000);
    const late = held();
    expect(seen.mostOpen).toBeLessThanOrEqual(3 * BOTS);
    expect(late.heapMb - early.heapMb).toBeLessThan(5);
    expect(late.timers - early.timers).toBeLessThanOrEqual(3 * BOTS);
    expect(warnings).not.toContain('MaxListenersExceededWarning');
  }, 200_000);
});
