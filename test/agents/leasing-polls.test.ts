import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, describe, expect, it } from 'vitest';
import { GatewayClient } from '../../src/agents/worker/client.ts';
import { PullLoop } from '../../src/agents/worker/pull-loop.ts';
import { RunJournal } from '../../src/agents/worker/run-journal.ts';
import { RunTable } from '../../src/agents/worker/run-table.ts';
import { systemClock } from '../../src/clock.ts';
import { silentLog } from '../../src/log.ts';
import { until } from '../support/until.ts';

const cleanups: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** The client looks at its time limits once a second, so calls without an answer are spread over several agents. */
const AGENTS = 10;

/** A gateway that cuts three calls of ten, leaves one without an answer, and answers the others. */
async function badGateway() {
  const seen = { calls: 0, open: new Set<Socket>(), mostOpen: 0 };
  const server = createServer((request, response) => {
    request.resume();
    const kind = seen.calls % 10;
    seen.calls += 1;
    if (kind < 3) response.destroy();
    else if (kind > 3) response.writeHead(200, { 'content-type': 'application/json' }).end('{"tasks":[]}');
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

async function pullsFrom(gatewayUrl: string): Promise<PullLoop> {
  const dir = await mkdtemp(join(tmpdir(), 'errand-polls-'));
  cleanups.push(() => rm(dir, { recursive: true, force: true }));
  const client = new GatewayClient({ gatewayUrl, token: 't', timeoutMs: 30 });
  cleanups.push(() => client.close());
  const runs = new RunTable({
    concurrency: 1,
    runtimes: new Map(),
    policy: { allow: [], commands: undefined } as never,
    journal: new RunJournal({ dir, bootId: 'b', log: silentLog }),
    log: silentLog,
    onSlotFree: () => undefined,
    mayTake: () => true,
    context: {
      clock: systemClock,
      secrets: new Map(),
      hurry: new AbortController().signal,
      send: () => undefined,
      spawned: () => undefined,
    },
  });
  const backoff = { baseMs: 1, factor: 1, capMs: 1, jitter: 0 };
  const retry = { log: silentLog, backoff, slowRetryMs: 1, onReplaced: () => undefined, onUnknown: () => undefined };
  const loop = new PullLoop({
    ...{ client, caller: '"agentId":"a","instanceId":"i"', runs, retry, waitMs: 1 },
    ensureRegistered: async () => undefined,
  });
  cleanups.push(() => loop.stop());
  return loop;
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

describe('A68: two thousand pulls of which many are cut or never answered', () => {
  it('keep at most three sockets an agent, and leave no listeners, timers or memory behind', async () => {
    const warnings: string[] = [];
    const onWarning = (warning: Error) => warnings.push(warning.name);
    process.on('warning', onWarning);
    cleanups.push(() => process.off('warning', onWarning));
    const { seen, url } = await badGateway();
    const loops = await Promise.all(Array.from({ length: AGENTS }, () => pullsFrom(url)));
    for (const loop of loops) await loop.start();
    await until(() => seen.calls >= 500, '500 pulls', 60_000);
    const early = held();
    await until(() => seen.calls >= 2_000, '2,000 pulls', 120_000);
    const late = held();
    expect(seen.mostOpen).toBeLessThanOrEqual(3 * AGENTS);
    expect(late.heapMb - early.heapMb).toBeLessThan(5);
    expect(late.timers - early.timers).toBeLessThanOrEqual(3 * AGENTS);
    expect(warnings).not.toContain('MaxListenersExceededWarning');
  }, 200_000);
});
