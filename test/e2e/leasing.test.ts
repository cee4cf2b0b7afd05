import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { errand } from '../cli/errand.ts';
import { compiledSrc } from '../support/compiled.ts';
import { startFakeTelegram } from '../support/fake-telegram/fake-telegram.ts';
import { TestGateway } from '../support/gateway.ts';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

interface TaskSeen {
  taskId: string;
  status: string;
  attempt: number;
  runs: { agentId: string; outcome?: string; claimedAt: number; startedAt?: number; endedAt?: number }[];
}

interface AgentSeen {
  agentId: string;
  online: boolean;
  draining?: { by: string; why?: string };
}

async function house(env: Record<string, string> = {}): Promise<Processes> {
  const processes = new Processes(env);
  cleanups.push(() => processes.end());
  await processes.gateway();
  return processes;
}

const submit = async (processes: Processes, template: string, args: object) =>
  (await processes.api<{ taskId: string }>('POST', '/api/tasks', { template, args })).taskId;
const taskOf = (processes: Processes, id: string) => processes.api<TaskSeen>('GET', `/api/tasks/${id}`);
const agentsOf = async (processes: Processes) =>
  (await processes.api<{ agents: AgentSeen[] }>('GET', '/api/agents')).agents;

/** A real agent that waits for work. */
async function agentThatWaits(processes: Processes, agentId: string): Promise<ChildProcess> {
  const child = await processes.agent(agentId, await processes.agentToken(agentId));
  await until(
    async () => (await agentsOf(processes)).some((agent) => agent.agentId === agentId && agent.online),
    `${agentId} to register`,
  );
  return child;
}

const untilRunning = (processes: Processes, id: string) =>
  until(async () => (await taskOf(processes, id)).status === 'running', 'the task to run');

/** Waits until another run has started, and answers all runs. */
async function untilTakenOver(processes: Processes, id: string): Promise<TaskSeen['runs']> {
  return until(
    async () => {
      const { runs, status } = await taskOf(processes, id);
      return runs.length === 2 && status === 'running' ? runs : undefined;
    },
    'another agent to run the task',
    25_000,
  );
}

const exitOf = (child: ChildProcess) =>
  new Promise<number | null>((resolve) => {
    if (child.exitCode !== null) resolve(child.exitCode);
    else child.once('exit', resolve);
  });

/** An agent whose runtime blocks the whole event loop for so long, as a fault in the agent itself would. */
async function agentThatBlocks(processes: Processes, blockMs: number): Promise<{ book: () => string[] }> {
  const source = await compiledSrc();
  const module = (path: string) => JSON.stringify(pathToFileURL(join(source, path)).href);
  const folder = join(processes.folder, 'blocker');
  const book = join(folder, 'book');
  mkdirSync(folder);
  writeFileSync(book, '');
  writeFileSync(
    join(folder, 'agent.mjs'),
    `import { appendFileSync } from 'node:fs';
import { createAgent } from ${module('agents/worker/agent.js')};
import { systemClock } from ${module('clock.js')};
import { readAgentSettings } from ${module('config/agent.js')};
import { createLog } from ${module('log.js')};
const blocking = {
  async run() {
    // The thread starts when a run has lasted a tenth of a lease, and loads its code.
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    appendFileSync(${JSON.stringify(book)}, 'begun\\n');
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ${blockMs});
    appendFileSync(${JSON.stringify(book)}, 'done\\n');
    return { type: 'succeeded', summary: 'blocked and done', exitCode: 0 };
  },
};
const settings = readAgentSettings(process.env);
const agent = createAgent({ settings, log: createLog({ level: 'warn' }), clock: systemClock, version: '0.0.0', runtimes: new Map([['shell', blocking]]) });
await agent.start();
`,
  );
  const child = spawn(process.execPath, [join(folder, 'agent.mjs')], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'inherit'],
    env: {
      PATH: process.env.PATH,
      HOME: folder,
      AGENT_GATEWAY_URL: processes.url,
      AGENT_TOKEN: await processes.agentToken('blocker'),
      AGENT_ID: 'blocker',
      AGENT_SPOOL_DIR: join(folder, 'spool'),
    },
  });
  cleanups.push(() => processes.kill(child));
  return { book: () => readFileSync(book, 'utf8').trim().split('\n') };
}

describe('A01: an agent whose loop is blocked for longer than its lease', () => {
  it('keeps the lease by its own thread: the run is neither lost nor run twice', async () => {
    const processes = await house({ ERRAND_LEASE_MS: '3000', ERRAND_HEARTBEAT_MS: '1000' });
    const { book } = await agentThatBlocks(processes, 8_000);
    await until(async () => (await agentsOf(processes)).some(({ agentId }) => agentId === 'blocker'), 'the blocker');
    const id = await submit(processes, 'hello', { name: 'Ada' });
    await until(() => book()[0] === 'begun', 'the loop to be blocked');
    await agentThatWaits(processes, 'spare');
    await until(async () => (await taskOf(processes, id)).status === 'succeeded', 'the task to succeed', 40_000);
    const task = await taskOf(processes, id);
    expect(task.runs.map(({ agentId, outcome }) => [agentId, outcome])).toEqual([['blocker', 'succeeded']]);
    expect(task.attempt).toBe(1);
    expect(book()).toEqual(['begun', 'done']);
  }, 90_000);
});

/** So long that nothing which waits for a lease to end could pass. */
const TEN_MINUTES = { ERRAND_LEASE_MS: '600000' };

describe('hand-over at a lease of ten minutes', () => {
  it('A46: SIGTERM gives the run back, and a waiting agent has it without waiting for the lease; the agent is shown as gone', async () => {
    const processes = await house(TEN_MINUTES);
    const first = await agentThatWaits(processes, 'first');
    const id = await submit(processes, 'sleep', { seconds: 600 });
    await untilRunning(processes, id);
    await agentThatWaits(processes, 'second');
    first.kill('SIGTERM');
    const [gone, next] = await untilTakenOver(processes, id);
    expect([gone!.agentId, gone!.outcome, next!.agentId]).toEqual(['first', 'released', 'second']);
    expect(await exitOf(first)).toBe(0);
    expect((await agentsOf(processes)).find(({ agentId }) => agentId === 'first')).toMatchObject({ online: false });
    expect((await taskOf(processes, id)).attempt).toBe(1);
  }, 90_000);

  it('kill -9: the next instance on the same machine takes over without waiting for the lease', async () => {
    const processes = await house(TEN_MINUTES);
    const token = await processes.agentToken('only');
    const first = await processes.agent('only', token);
    const id = await submit(processes, 'sleep', { seconds: 600 });
    await untilRunning(processes, id);
    await processes.kill(first);
    await processes.agent('only', token);
    const [gone, next] = await untilTakenOver(processes, id);
    expect([gone!.outcome, next!.agentId]).toEqual(['lost', 'only']);
  }, 90_000);
});

describe('errand agents drain', () => {
  it('finishes what runs, takes nothing new across restarts of both sides, says so everywhere, and resume starts what waited', async () => {
    const processes = await house();
    const env = { ERRAND_URL: processes.url, ERRAND_TOKEN: processes.adminToken };
    const cli = (...args: string[]) => errand(args, { cwd: processes.folder, env });
    const token = await processes.agentToken('a1');
    const agent = await processes.agent('a1', token);
    const running = await submit(processes, 'sleep', { seconds: 1 });
    await untilRunning(processes, running);
    expect(await cli('agents', 'drain', 'a1', '--why', 'new disk')).toMatchObject({
      code: 0,
      out: expect.stringContaining('Agent a1 takes nothing new; it finishes 1 run.'),
      err: '',
    });
    const waiting = await processes.api<{ taskId: string; hint?: { reason: string } }>('POST', '/api/tasks', {
      template: 'hello',
      args: { name: 'Ada' },
    });
    expect(waiting.hint?.reason).toBe('machines_draining');
    await until(async () => (await taskOf(processes, running)).status === 'succeeded', 'the run to end');
    expect((await cli('agents', 'list')).out).toMatch(/a1 +draining/);
    expect((await cli('tasks', 'why', waiting.taskId)).out).toContain(
      'The agent a1 takes nothing new for now (new disk).',
    );

    await processes.kill(agent);
    await processes.agent('a1', token);
    await until(async () => (await agentsOf(processes))[0]?.online, 'the agent to be back');
    expect((await taskOf(processes, waiting.taskId)).status).toBe('queued');
    expect((await agentsOf(processes))[0]).toMatchObject({ draining: { why: 'new disk' } });

    expect(await cli('agents', 'resume', 'a1')).toMatchObject({ code: 0, out: 'Agent a1 takes work again.\n' });
    await until(async () => (await taskOf(processes, waiting.taskId)).status === 'succeeded', 'the task to start');
    const { entries } = await processes.api<{ entries: { action: string; target: string }[] }>('GET', '/api/audit');
    expect(entries.filter(({ target }) => target === 'a1').map(({ action }) => action)).toEqual(
      expect.arrayContaining(['agent.draining', 'agent.resumed']),
    );
    expect(await cli('agents', 'drain', 'nobody')).toMatchObject({ code: 3 });
  }, 120_000);
});

it('a task that nobody can take says so in the chat and why, and runs when a machine comes', async () => {
  const telegram = await startFakeTelegram();
  cleanups.push(() => telegram.stop());
  const gateway = await TestGateway.start({ TELEGRAM_BOT_TOKEN: telegram.token, TELEGRAM_API_ROOT: telegram.url });
  cleanups.push(() => gateway.stop());
  await gateway.pair('telegram', '42');
  telegram.userSends({ chat: 42, user: 42, text: '/run hello name=Ada' });
  const told = await until(
    () => telegram.botTexts(42).find((text) => text.includes('nobody can take it now')),
    'the answer that nobody can take it',
  );
  const { body } = await gateway.api<{ tasks: { taskId: string; status: string }[] }>('GET', '/api/tasks');
  expect(body.tasks.map(({ status }) => status)).toEqual(['queued']);
  expect(told).toContain(`/cancel ${body.tasks[0]!.taskId}`);
  expect(told).toContain('No machine serves pool default. It starts when one is connected.');
  await gateway.agent();
  await until(() => telegram.botTexts(42).some((text) => text.includes('Hello, Ada')), 'the result', 30_000);
  telegram.userSends({ chat: 42, user: 42, text: '/run hello name=Bob' });
  await until(() => telegram.botTexts(42).some((text) => text.includes('Hello, Bob')), 'the second result', 30_000);
  expect(telegram.botTexts(42).filter((text) => text.includes('nobody can take it'))).toHaveLength(1);
}, 120_000);
