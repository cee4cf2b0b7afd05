// BullMQ 6 on a Redis of its own with appendfsync always (every answered write is on disk), as durable as SQLite with FULL.
import { Queue, Worker } from 'bullmq';
import { knobs, payload, pendingFor, RESULT, run } from './harness.mjs';

const connection = { host: '127.0.0.1', port: knobs.redisPort, maxRetriesPerRequest: null };
const nameOf = (ctx) => `bench-${pendingFor(ctx.mode) > 0 ? ctx.mode : 'life'}`;
let queue;
const queueOf = (ctx) => (queue ??= new Queue(nameOf(ctx), { connection }));
const count = async (ctx, state) => (await queueOf(ctx).getJobCounts(state))[state];

await run({
  name: 'bullmq',
  url: import.meta.url,
  async prepare(ctx) {
    await queueOf(ctx).waitUntilReady();
    if (pendingFor(ctx.mode) === 0) return queueOf(ctx).obliterate({ force: true });
    await queueOf(ctx).clean(0, 1e9, 'completed');
    for (let have = await count(ctx, 'waiting'); have < pendingFor(ctx.mode); ) {
      const size = Math.min(1000, pendingFor(ctx.mode) - have);
      await queueOf(ctx).addBulk(Array.from({ length: size }, (_, i) => ({ name: 'task', data: payload(i) })));
      have += size;
    }
  },
  async openSubmitter(ctx) {
    await queueOf(ctx).waitUntilReady();
    return { submit: (data) => queueOf(ctx).add('task', data), close: () => queueOf(ctx).close() };
  },
  async openWorker(ctx, told) {
    const process = async (job) => {
      told.started(job.data);
      return RESULT;
    };
    const concurrency = ctx.variant === 'many' ? 1 : knobs.inFlight;
    const workers = Array.from(
      { length: ctx.variant === 'many' ? 100 : 1 },
      () => new Worker(nameOf(ctx), process, { connection, concurrency }),
    );
    for (const worker of workers) {
      worker.on('completed', () => told.completed());
      worker.on('error', (error) => console.error(error.message));
    }
    await Promise.all(workers.map((worker) => worker.waitUntilReady()));
    return { close: () => Promise.all(workers.map((worker) => worker.close())) };
  },
  countDone: (ctx) => count(ctx, 'completed'),
  countPending: (ctx) => count(ctx, 'waiting'),
  async end(ctx) {
    const pending_after = await count(ctx, 'waiting');
    await queueOf(ctx).close();
    return { pending_after };
  },
});
