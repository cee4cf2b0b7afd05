#!/usr/bin/env node
// Do tasks that may not start yet slow down those that may? HELD tasks wait ahead of the due ones, all of a better priority: delayed by a
// day, or behind an open breaker. Measures one claim of one task, in the process that owns the database: the work inside the transaction
// (the commit comes on top and is the same for all).
//   npm run build && node bench/held.mjs              100,000 held
// Prints a table and, as its last line, the figures as JSON. Goal: p99 under 1 ms.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { knobs, now, payload, quantile, round2 } from './harness.mjs';

const { startGateway } = await import('../dist/app.js');
const { readGatewaySettings } = await import('../dist/config/gateway.js');
const { createLog } = await import('../dist/log.js');

const HELD = Number(process.env.HELD ?? 100_000);
const CLAIMS = Number(process.env.CLAIMS ?? 1_000);
const ARGS = `args: { i: { type: integer }, t: { type: number }, tenant: {}, thread: {}, prompt: {} }
command: [node, --version]
`;
const folder = resolve(knobs.dir, 'held');
rmSync(folder, { recursive: true, force: true });
mkdirSync(join(folder, 'templates'), { recursive: true });
writeFileSync(join(folder, 'templates', 'bench.yaml'), `id: bench\n${ARGS}`);
writeFileSync(join(folder, 'templates', 'behind.yaml'), `id: behind\n${ARGS}breaker: { name: psb }\npriority: high\n`);

const settings = readGatewaySettings({
  ERRAND_STATE_DIR: folder,
  ERRAND_TEMPLATES_DIR: join(folder, 'templates'),
  ERRAND_PORT: '0',
  ERRAND_RETENTION_DAYS: '7',
});
const gateway = await startGateway({ settings, log: createLog({ level: 'error' }) });
const { store, submitter, line, breakers } = gateway.rooms;
const claim = {
  agentId: 'bench',
  instanceId: 'bench',
  queues: ['default/shell', '@bench/shell'],
  max: 1,
  leaseMs: 3_600_000,
  holding: null,
};

async function submit(count, more) {
  for (let i = 0; i < count; i += 1_000) {
    const batch = Array.from({ length: Math.min(1_000, count - i) }, (_, k) => ({
      template: 'bench',
      args: payload(i + k),
      notify: 'silent',
      ...more,
    }));
    await submitter.submitAll(batch);
  }
}

async function measure() {
  await submit(CLAIMS, {});
  const times = [];
  for (let n = 0; n < CLAIMS; n += 1) {
    await store.transact('bench.claim', async (tx) => {
      const started = now();
      const [grants] = await line.claim.run(tx, [claim]);
      times.push(now() - started);
      if (grants.length !== 1) throw new Error(`${grants.length} tasks`);
    });
  }
  return { p50: round2(quantile(times, 0.5)), p99: round2(quantile(times, 0.99)) };
}

const figures = {};
await measure();
figures['nothing held'] = await measure();
await submit(HELD, { priority: 'high', runAt: Date.now() + 86_400_000 });
figures[`${HELD} delayed`] = await measure();
await submit(HELD, { template: 'behind' });
await store.transact('bench.open', (tx) => breakers.open(tx, { name: 'psb', by: 'bench', why: null }, 3_600_000));
figures[`${HELD} delayed and ${HELD} behind a breaker`] = await measure();
await gateway.stop();
const width = Math.max(...Object.keys(figures).map((name) => name.length));
for (const [name, { p50, p99 }] of Object.entries(figures))
  console.log(`${name.padEnd(width)}  p50 ${p50} ms  p99 ${p99} ms`);
console.log(JSON.stringify({ held: HELD, ...figures }));
