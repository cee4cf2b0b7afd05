// The work that every contestant does, so that their figures can be compared. A contestant is `node contestant-x.mjs <variant> <mode>`
// and prints one JSON line, the last of its standard output.
//   lifecycle  N tasks, each its own submission, IN_FLIGHT of them under way; IN_FLIGHT no-op executions under way; a result of about
//              200 bytes stored. Rate = N / (first submit -> last durable completion, confirmed by counting in the store itself).
//   paced      RATE tasks a second for PACED_S seconds; latency = submit call -> entry of the handler (CLOCK_MONOTONIC, comparable
//              between processes of one machine), and submit call -> acknowledgement.
//   backlog    as lifecycle, with BACKLOG tasks already pending; the worker starts with the submitter and stops after N completions.
//   shallow    the same with SHALLOW pending: the baseline of backlog.
// Server, submitter and worker are processes of their own.
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const number = (name, otherwise) => Number(process.env[name] ?? otherwise);
export const knobs = {
  n: number('N', 10_000),
  inFlight: number('IN_FLIGHT', 64),
  rate: number('RATE', 200),
  pacedSeconds: number('PACED_S', 10),
  backlog: number('BACKLOG', 200_000),
  shallow: number('SHALLOW', 10_000),
  dir: process.env.BENCH_DIR ?? '.bench',
  redisPort: number('BENCH_REDIS_PORT', 16_379),
};

export const now = () => Number(process.hrtime.bigint()) / 1e6;
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const FILLER = 'A person asked for something, and the answer has to come home whatever happens on the way; '.repeat(4);
/** About 290 bytes of JSON. */
export const payload = (i) => ({
  i,
  t: now(),
  tenant: 'team-7',
  thread: 'C042/1718000000.1234',
  prompt: FILLER.slice(0, 200),
});
/** About 200 bytes of JSON. */
export const RESULT = { ok: true, summary: FILLER.slice(0, 172) };

export function quantile(values, q) {
  if (values.length === 0) return null;
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))];
}
export const round2 = (value) => (value == null ? null : Math.round(value * 100) / 100);
export const pendingFor = (mode) => (mode === 'backlog' ? knobs.backlog : mode === 'shallow' ? knobs.shallow : 0);
const targetFor = (mode) => (mode === 'paced' ? knobs.rate * knobs.pacedSeconds : knobs.n);
const startsCold = (mode) => mode === 'backlog' || mode === 'shallow';

/**
 * Runs a contestant: {url, prepare(ctx), openSubmitter(ctx) -> {submit(payload), close()},
 * openWorker(ctx, {started(payload), completed()}) -> {close()}, countDone(ctx), countPending(ctx), end(ctx)}.
 */
export async function run(contestant) {
  const [variant, mode, role] = process.argv.slice(2);
  const ctx = { variant, mode };
  if (role) await child(contestant, ctx, role);
  else await parent(contestant, ctx);
}

async function parent(contestant, ctx) {
  await contestant.prepare(ctx);
  const children = ['worker', 'submitter'].map((role) =>
    fork(fileURLToPath(contestant.url), [ctx.variant, ctx.mode, role], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    }),
  );
  const heard = {};
  let wake = () => undefined;
  let ready = 0;
  for (const kid of children) {
    kid.on('message', (message) => {
      if (message.ready) ready += 1;
      else heard[message.role] = message;
      wake();
    });
    kid.on('exit', (code) => {
      if (code) {
        console.error(`a child ended with ${code}`);
        process.exit(1);
      }
    });
  }
  const until = async (condition) => {
    while (!condition()) await new Promise((resolve) => (wake = resolve));
  };
  await until(() => ready === children.length);
  await sleep(300);
  const before = startsCold(ctx.mode) ? await contestant.countDone(ctx) : 0;
  const opened = now();
  for (const kid of children) kid.send('go');
  await until(() => heard.worker && heard.submitter);
  const target = targetFor(ctx.mode);
  let end = Math.max(heard.worker.last, heard.submitter.last);
  let verified = false;
  for (let tries = 0; tries < 2000 && !verified; tries += 1) {
    verified = (await contestant.countDone(ctx)) - before >= target;
    if (!verified) {
      await sleep(5);
      end = Math.max(end, now());
    }
  }
  const start = startsCold(ctx.mode) ? opened : heard.submitter.first;
  const result = {
    contestant: contestant.name,
    variant: ctx.variant,
    mode: ctx.mode,
    verified,
    n: target,
    tasks_per_s: ctx.mode === 'paced' ? null : round2((target * 1000) / (end - start)),
    take_per_s: startsCold(ctx.mode) ? round2((target * 1000) / (heard.worker.last - opened)) : null,
    start_p50_ms: round2(heard.worker.p50),
    start_p99_ms: round2(heard.worker.p99),
    ack_p50_ms: round2(heard.submitter.p50),
    ack_p99_ms: round2(heard.submitter.p99),
    client_cpu_ms_per_task: round2((heard.worker.cpu + heard.submitter.cpu) / target),
  };
  for (const kid of children) kid.send('stop');
  await Promise.race([
    Promise.all(children.map((kid) => new Promise((resolve) => kid.on('exit', resolve)))),
    sleep(10_000),
  ]);
  for (const kid of children) kid.kill('SIGKILL');
  Object.assign(result, await contestant.end?.(ctx));
  console.log(JSON.stringify(result));
  process.exit(0);
}

const cpuMs = () => (process.cpuUsage().user + process.cpuUsage().system) / 1000;

async function child(contestant, ctx, role) {
  process.on('disconnect', () => process.exit(1));
  let open;
  if (role === 'worker' && !startsCold(ctx.mode)) open = await work(contestant, ctx);
  if (role === 'submitter') open = await contestant.openSubmitter(ctx);
  process.on('message', async (message) => {
    if (message === 'go' && role === 'worker') open ??= await work(contestant, ctx);
    if (message === 'go' && role === 'submitter') process.send({ role, ...(await submitAll(open, ctx.mode)) });
    if (message === 'stop') {
      await Promise.race([Promise.resolve(open?.close?.()).catch(() => undefined), sleep(8_000)]);
      process.exit(0);
    }
  });
  process.send({ ready: true });
}

async function submitAll(submitter, mode) {
  const acks = [];
  const first = now();
  const one = async (i) => {
    const data = payload(i);
    await submitter.submit(data);
    acks.push(now() - data.t);
  };
  if (mode === 'paced') {
    const under = new Set();
    for (let i = 0; i < targetFor(mode); i += 1) {
      const wait = first + (i * 1000) / knobs.rate - now();
      if (wait > 0.5) await sleep(wait);
      const call = one(i).then(() => under.delete(call));
      under.add(call);
    }
    await Promise.all(under);
  } else {
    let next = 0;
    const lane = async () => {
      while (next < knobs.n) await one(next++);
    };
    await Promise.all(Array.from({ length: knobs.inFlight }, lane));
  }
  return { first, last: now(), p50: quantile(acks, 0.5), p99: quantile(acks, 0.99), cpu: cpuMs() };
}

async function work(contestant, ctx) {
  const latencies = [];
  const target = targetFor(ctx.mode);
  let done = 0;
  let told = false;
  const worker = await contestant.openWorker(ctx, {
    started: (data) => latencies.push(now() - data.t),
    completed: (count = 1) => {
      done += count;
      if (done < target || told) return;
      told = true;
      process.send({
        role: 'worker',
        last: now(),
        p50: quantile(latencies, 0.5),
        p99: quantile(latencies, 0.99),
        cpu: cpuMs(),
      });
      if (startsCold(ctx.mode)) void worker?.close?.();
    },
  });
  return worker;
}
