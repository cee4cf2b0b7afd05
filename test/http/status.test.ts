import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Channel, ChannelHealth } from '../../src/channels/channel.ts';
import { manualClock } from '../../src/clock.ts';
import { AppError } from '../../src/errors.ts';
import { isLocal } from '../../src/http/routes/guard.ts';
import { readinessOf } from '../../src/http/routes/readiness.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await TestGateway.start();
  await gateway.agent();
});
afterAll(() => gateway?.stop());

/** With a Host of its own, which fetch does not allow. */
function statusOf(path: string, headers: Record<string, string>): Promise<number> {
  return new Promise((resolve, reject) => {
    request(gateway.url + path, { headers }, (response) => {
      response.resume();
      resolve(response.statusCode!);
    })
      .on('error', reject)
      .end();
  });
}

async function metric(series: string): Promise<number> {
  const text = await (await fetch(`${gateway.url}/metrics`)).text();
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${series} `));
  return Number(line?.slice(series.length + 1));
}

test('healthz answers anybody', async () => {
  expect(await statusOf('/healthz', { host: 'errand.example', 'x-forwarded-for': '203.0.113.9' })).toBe(200);
});

test('readyz and metrics answer callers on this machine, others only with the admin token', async () => {
  const authorization = `Bearer ${gateway.gateway.adminToken}`;
  for (const path of ['/readyz', '/metrics']) {
    expect(await statusOf(path, {})).toBe(200);
    const strangers: Record<string, string>[] = [
      { 'x-forwarded-for': '203.0.113.9' },
      { forwarded: 'for=203.0.113.9' },
      { host: 'rebound.example' },
    ];
    for (const headers of strangers) {
      expect(await statusOf(path, headers)).toBe(401);
      expect(await statusOf(path, { ...headers, authorization })).toBe(200);
    }
  }
});

test('only loopback addresses are local', () => {
  const local = (remoteAddress: string) => isLocal({ socket: { remoteAddress }, headers: { host: '127.0.0.1:8787' } });
  expect(['127.0.0.1', '::1', '::ffff:127.0.0.1'].map(local)).toEqual([true, true, true]);
  expect(['10.0.0.1', '::ffff:10.0.0.1', '', '2001:db8::1', '1270.0.0.1'].map(local)).toEqual([
    false,
    false,
    false,
    false,
    false,
  ]);
});

test('readyz names store and channels', async () => {
  const { status, body } = await gateway.api('GET', '/readyz');
  expect({ status, body }).toEqual({
    status: 200,
    body: {
      ready: true,
      store: { ok: true },
      channels: [{ channel: 'webchat', account: 'default', ok: true, ageMs: expect.any(Number) }],
    },
  });
});

test('a scrape follows the database, and no task makes a new series', async () => {
  const series = async () =>
    (await (await fetch(`${gateway.url}/metrics`)).text()).split('\n').filter((line) => line.startsWith('errand_'))
      .length;
  const before = await series();
  const done = await metric('errand_tasks_finished_total{state="succeeded"}');
  const submissions = Array.from({ length: 30 }, (_, index) => ({
    template: 'hello',
    args: { name: `person ${index}` },
    label: `label ${index}`,
  }));
  await gateway.api('POST', '/api/tasks/batch', submissions);
  await until(
    async () => (await metric('errand_tasks_finished_total{state="succeeded"}')) === done + 30,
    'the tasks to be counted',
  );
  await until(async () => (await metric('errand_tasks{state="queued"}')) === 0, 'no queued task');
  expect(await series()).toBe(before);
  expect(await metric('errand_agents{state="online"}')).toBe(1);
  expect(await metric('errand_store_transactions_total')).toBeGreaterThan(10);
});

test('stats are the same figures as JSON', async () => {
  const { body } = await gateway.api<{ version: string; agents: unknown; uptimeMs: number }>('GET', '/api/stats');
  expect(body).toMatchObject({ version: expect.stringMatching(/^\d/), agents: { online: 1, offline: 0 } });
  expect(body.uptimeMs).toBeGreaterThan(0);
});

describe('readiness', () => {
  const clock = manualClock(1_000_000);
  const channel = (health: ChannelHealth) =>
    ({ name: 'telegram', account: 'default', health: () => health }) as unknown as Channel;
  type Rooms = Parameters<typeof readinessOf>[0];
  const rooms = (transact: () => Promise<void>, health: ChannelHealth) =>
    ({ clock, store: { transact }, channels: new Map([['telegram/default', channel(health)]]) }) as unknown as Rooms;

  test('a store that refuses a write is not ready, and says why', async () => {
    const full = async () => {
      throw new AppError('storage_full', 'the disk is full');
    };
    expect(await readinessOf(rooms(full, { ok: true }))()).toMatchObject({
      ready: false,
      store: { ok: false, problem: 'the disk is full' },
    });
  });

  test('a channel without a proof of life is not ready, and its age is told', async () => {
    const health = { ok: false, lastOkAt: 900_000, problem: 'no poll has come back' };
    expect(await readinessOf(rooms(async () => undefined, health))()).toEqual({
      ready: false,
      store: { ok: true },
      channels: [
        { channel: 'telegram', account: 'default', ok: false, ageMs: 100_000, problem: 'no poll has come back' },
      ],
    });
  });

  test('many checks at once write once', async () => {
    let writes = 0;
    const write = async () => {
      writes += 1;
    };
    const check = readinessOf(rooms(write, { ok: true }));
    await Promise.all(Array.from({ length: 20 }, check));
    expect(writes).toBe(1);
  });
});
