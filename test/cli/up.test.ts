import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { freePort } from '../support/processes.ts';
import { until } from '../support/until.ts';
import { errand, startErrand } from './errand.ts';

let folder: string;
let port: number;
const running: { kill(signal: NodeJS.Signals): boolean }[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-up-'));
  port = await freePort();
});
afterEach(async () => {
  for (const child of running.splice(0)) child.kill('SIGKILL');
  await until(async () => !(await isAlive(await agentPid())), 'the local agent to end after its parent');
  await rm(folder, { recursive: true, force: true });
});

const env = (more: Record<string, string> = {}) => ({ ERRAND_PORT: String(port), ERRAND_LANG: 'en', ...more });

async function up(more: Record<string, string> = {}) {
  const started = await startErrand(['up'], { cwd: folder, env: env(more) });
  running.push(started.child);
  await until(() => {
    if (started.child.exitCode !== null) throw new Error(`errand up has ended: ${started.seen()}`);
    return started.seen().includes('Ctrl-C stops');
  }, 'errand up');
  return started;
}

const send = (text: string) => errand(['send', text, '--wait'], { cwd: folder, env: env() });

/** The agent writes its process id into its folder. */
async function agentPid(): Promise<number | undefined> {
  const text = await readFile(join(folder, 'data', 'agent-local', 'owner.json'), 'utf8').catch(() => undefined);
  // The file is there a moment before its content.
  return text ? (JSON.parse(text) as { pid: number }).pid : undefined;
}

async function isAlive(pid: number | undefined): Promise<boolean> {
  if (pid === undefined) return false;
  const state = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return state !== '' && !/\) Z /.test(state);
}

test('up prints where the web chat is, runs errands, keeps its tokens to itself, and a signal ends gateway and agent with 0', async () => {
  const { child, ended, seen } = await up({ ERRAND_STATE_DIR: join(folder, 'data') });
  expect(seen()).toMatch(/\/chat\/login\?token=[\w-]{20,}/);
  const { code, out } = await send('/run hello name=Ada');
  expect({ code, hello: out.includes('Hello, Ada!') }).toEqual({ code: 0, hello: true });
  for (const file of ['admin-token', 'local-agent.json']) {
    expect((await stat(join(folder, 'data', file))).mode & 0o777).toBe(0o600);
  }
  const pid = await agentPid();
  expect(await isAlive(pid)).toBe(true);
  child.kill('SIGTERM');
  expect((await ended).code).toBe(0);
  expect(await isAlive(pid)).toBe(false);
});

test('a second start uses the same agent token', async () => {
  const first = await up();
  const token = await readFile(join(folder, 'data', 'local-agent.json'), 'utf8');
  first.child.kill('SIGINT');
  expect((await first.ended).code).toBe(0);
  await up();
  expect(await readFile(join(folder, 'data', 'local-agent.json'), 'utf8')).toBe(token);
  expect((await send('/run hello')).code).toBe(0);
});

test('a killed up takes its agent along, and the next one runs errands again', async () => {
  const { child } = await up();
  await until(agentPid, 'the agent');
  const pid = await agentPid();
  child.kill('SIGKILL');
  await until(async () => !(await isAlive(pid)), 'the agent to notice');
  await up();
  expect((await send('/run hello name=Again')).out).toContain('Hello, Again!');
});

test('an agent that dies is started again', async () => {
  await up();
  const pid = (await until(agentPid, 'the agent')) as number;
  process.kill(pid, 'SIGKILL');
  expect((await send('/run hello name=Revived')).out).toContain('Hello, Revived!');
  expect(await agentPid()).not.toBe(pid);
});

test('a stop does not wait for a long task, and the task is not lost', async () => {
  const { child, ended } = await up();
  const { out } = await errand(['send', '/run sleep seconds=600', '--json'], { cwd: folder, env: env() });
  expect(out).toContain('inboxId');
  await until(
    async () =>
      (await errand(['tasks', 'list', '--status', 'running'], { cwd: folder, env: env() })).out.includes('sleep'),
    'the task to run',
  );
  const startedAt = performance.now();
  child.kill('SIGTERM');
  expect((await ended).code).toBe(0);
  expect(performance.now() - startedAt).toBeLessThan(11_000);
  await up();
  const { tasks } = JSON.parse((await errand(['tasks', 'list', '--json'], { cwd: folder, env: env() })).out) as {
    tasks: { status: string }[];
  };
  expect(['queued', 'leased', 'running']).toContain(tasks[0]!.status);
});

test('a port that is taken is one clear line and exit code 2', async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const { code, err } = await errand(['up'], { cwd: folder, env: env() });
  await new Promise((resolve) => server.close(resolve));
  expect({ code, err }).toEqual({ code: 2, err: `errand: ERRAND_PORT: port ${port} on 127.0.0.1 is in use\n` });
});

test('two gateways on one folder are refused with exit code 4', async () => {
  await up();
  const { code, err } = await errand(['gateway'], {
    cwd: folder,
    env: env({ ERRAND_PORT: String(await freePort()), ERRAND_LOG_LEVEL: 'silent' }),
  });
  expect(code).toBe(4);
  expect(err).toMatch(/^errand: another gateway has this database open/);
});

test('bad settings of the local agent are told before anything starts', async () => {
  const { code, err } = await errand(['up'], { cwd: folder, env: env({ AGENT_CONCURRENCY: 'many', AGENT_POOL: 'x' }) });
  expect(code).toBe(2);
  expect(err).toContain('errand: AGENT_CONCURRENCY: ');
  expect(err).toContain('did you mean AGENT_POOLS?');
  await expect(stat(join(folder, 'data'))).rejects.toThrow();
});

test('settings of the gateway do not reach the programs of the local agent', async () => {
  await writeFile(
    join(folder, '.env'),
    'ERRAND_ADMIN_TOKEN=the-token-of-the-administrator\nERRAND_TEMPLATES_DIR=mine\n',
  );
  await mkdir(join(folder, 'mine'));
  await writeFile(
    join(folder, 'mine', 'env.yaml'),
    'id: env\ncommand: [node, -e, "console.log(JSON.stringify(process.env))"]\n',
  );
  await up();
  const { code, out } = await send('/run env');
  expect(code).toBe(0);
  expect(out).toContain('ERRAND_TASK_ID');
  for (const secret of ['the-token-of-the-administrator', 'ADMIN_TOKEN', 'AGENT_TOKEN', 'agt_'])
    expect(out).not.toContain(secret);
});
