// An agent goes in the middle of a task: seconds until the task is started again.
//   killed with SIGKILL, another agent is already running: BullMQ beside it, by default (lock 30 s, stalled check 30 s) and at its tightest
//   killed and started again on the same machine: from the start of the new process
//   stopped with SIGTERM, another agent is already running
import { fork } from 'node:child_process';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { knobs, now, round2, sleep } from './harness.mjs';

const SELF = fileURLToPath(import.meta.url);
const BULLMQ = { 'bullmq default': {}, 'bullmq tightest': { lockDuration: 1_500, stalledInterval: 500 } };
const SHORT = { ERRAND_LEASE_MS: '3000', ERRAND_HEARTBEAT_MS: '1000' };
const ERRAND = {
  'errand default': [{}, killAndTime],
  'errand lease 3 s': [SHORT, killAndTime],
  'errand restarted': [{}, restartAndTime],
  'errand stopped': [{}, stopAndTime],
};
const connection = { host: '127.0.0.1', port: knobs.redisPort, maxRetriesPerRequest: null };
const forever = () => new Promise(() => setInterval(() => undefined, 1e6));

/** Answers {[case]: seconds}. The cases mostly wait, so they run side by side. */
export async function failover(dir) {
  const entries = [
    ...Object.entries(BULLMQ).map(async ([name, settings]) => [name, await bullmqCase(name, settings)]),
    ...Object.entries(ERRAND).map(async ([name, [env, time]]) => [
      name,
      await errandCase(join(dir, name.replaceAll(' ', '-')), env, time),
    ]),
  ];
  return Object.fromEntries(await Promise.all(entries));
}

function startChild(args) {
  const child = fork(SELF, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const heard = (key) =>
    new Promise((done) => child.on('message', (message) => message[key] !== undefined && done(message[key])));
  return { child, ready: heard('ready'), started: heard('startedAt') };
}

/** Kills the one in the middle of its task and answers when the other has started it. */
async function killAndTime(first, agent) {
  const second = agent(1);
  await second.ready;
  await sleep(500 + Math.random() * 3_000);
  return secondsUntil(second, () => first.child.kill('SIGKILL'));
}

async function stopAndTime(first, agent) {
  const second = agent(1);
  await second.ready;
  await sleep(500 + Math.random() * 3_000);
  return secondsUntil(second, () => first.child.kill('SIGTERM'));
}

async function restartAndTime(first, agent) {
  await sleep(500 + Math.random() * 3_000);
  const gone = new Promise((done) => first.child.once('exit', done));
  first.child.kill('SIGKILL');
  await gone;
  const from = now();
  const again = agent(0);
  return secondsUntil(again, () => undefined, from);
}

async function secondsUntil(second, act, from = now()) {
  act();
  const at = await Promise.race([second.started, sleep(120_000).then(() => null)]);
  second.child.kill('SIGKILL');
  return at === null ? null : round2((at - from) / 1000);
}

async function bullmqCase(name, settings) {
  const { Queue } = await import('bullmq');
  const queueName = `failover-${name.replaceAll(' ', '-')}`;
  const queue = new Queue(queueName, { connection });
  await queue.obliterate({ force: true });
  const args = ['bullmq', queueName, JSON.stringify(settings)];
  const first = startChild(args);
  await first.ready;
  await queue.add('task', {});
  await first.started;
  const seconds = await killAndTime(first, () => startChild(args));
  await queue.close();
  return seconds;
}

async function errandCase(dir, env, time) {
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(dir, { recursive: true });
  const server = fork(fileURLToPath(new URL('errand-server.mjs', import.meta.url)), [dir], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    env: { ...process.env, ...env },
  });
  const address = await new Promise((done) => server.once('message', done));
  const agent = (index) => startChild(['errand', dir, address.url, address.agentTokens[index], String(index)]);
  const first = agent(0);
  await first.ready;
  const { SubmitClient } = await import('../dist/client/submit-client.js');
  const client = new SubmitClient({ url: address.url, token: address.token });
  await client.submit({ template: 'bench', args: { i: 1, t: 1, tenant: 't', thread: 't', prompt: 'p' } });
  await first.started;
  const seconds = await time(first, agent);
  await client.close();
  server.kill('SIGKILL');
  return seconds;
}

const [role, ...rest] = process.argv.slice(2);
if (process.send && role === 'bullmq') {
  const [queueName, settings] = rest;
  const { Worker } = await import('bullmq');
  const hold = async () => {
    process.send({ startedAt: now() });
    await forever();
  };
  const worker = new Worker(queueName, hold, { connection, concurrency: 1, ...JSON.parse(settings) });
  await worker.waitUntilReady();
  process.send({ ready: true });
} else if (process.send && role === 'errand') {
  const [dir, url, token, index] = rest;
  const { createAgent } = await import('../dist/agents/worker/agent.js');
  const { readAgentSettings } = await import('../dist/config/agent.js');
  const { systemClock } = await import('../dist/clock.js');
  const { createLog } = await import('../dist/log.js');
  const settings = readAgentSettings({
    AGENT_GATEWAY_URL: url,
    AGENT_TOKEN: token,
    AGENT_ID: `agent-${index}`,
    AGENT_SPOOL_DIR: join(dir, `spool-${index}`),
    AGENT_LOG_LEVEL: 'error',
  });
  const hold = {
    async run({ signal }) {
      process.send({ startedAt: now() });
      await new Promise((stopped) => signal.addEventListener('abort', stopped));
      return { type: 'released' };
    },
  };
  process.on('SIGTERM', () => agent.stop());
  const agent = createAgent({
    settings,
    clock: systemClock,
    version: 'bench',
    log: createLog({ level: 'error' }),
    runtimes: new Map([['shell', hold]]),
  });
  await agent.start();
  while (!agent.isRegistered()) await sleep(20);
  process.send({ ready: true });
}
