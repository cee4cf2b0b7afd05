import type { ChildProcess } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';
import { startErrand } from './errand.ts';

/** Writes down which agent runs it, and as which process, and goes on for a while. */
const NOTE = `id: note
args:
  file: { type: string, max: 200 }
  number: { type: string }
  ms: { type: string }
command:
  - node
  - -e
  - |
    const { ERRAND_ARG_FILE: file, ERRAND_ARG_NUMBER: number, ERRAND_ARG_MS: ms } = process.env;
    require('node:fs').appendFileSync(file, [process.ppid, process.pid, number].join(' ') + '\\n');
    setTimeout(() => {}, Number(ms));
`;

let folder: string;
let gateway: TestGateway;
const running: ChildProcess[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-clone-'));
  await mkdir(join(folder, 'templates'));
  await writeFile(join(folder, 'templates', 'note.yaml'), NOTE);
  gateway = await TestGateway.start({ ERRAND_TEMPLATES_DIR: join(folder, 'templates') });
});
afterEach(() => {
  for (const child of running.splice(0)) child.kill('SIGKILL');
});
afterAll(async () => {
  await gateway?.stop();
  await rm(folder, { recursive: true, force: true });
});

/** An agent on this copy of the machine. */
async function startAgent(token: string, copy: string) {
  const env = {
    AGENT_GATEWAY_URL: gateway.url,
    AGENT_TOKEN: token,
    AGENT_ID: 'x',
    AGENT_SPOOL_DIR: join(folder, copy),
    AGENT_CONCURRENCY: '2',
  };
  const started = await startErrand(['agent'], { cwd: folder, env });
  running.push(started.child);
  return started;
}

interface Started {
  agent: number;
  pid: number;
  task: string;
}

async function notes(file: string): Promise<Started[]> {
  const lines = (await readFile(file, 'utf8').catch(() => '')).split('\n').filter((line) => line !== '');
  return lines.map((line) => {
    const [agent, pid, task] = line.split(' ') as [string, string, string];
    return { agent: Number(agent), pid: Number(pid), task };
  });
}

async function isAlive(pid: number): Promise<boolean> {
  const state = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return state !== '' && !/\) Z /.test(state);
}

test('A06: of a machine and its copy exactly one works: the replaced one stops, ends its programs, and no task is done by both', async () => {
  const token = await gateway.gateway.rooms.tokens.issue({ agentId: 'x', pools: ['x'], labels: {} });
  const file = join(folder, 'notes');
  const submit = async (number: string, ms: string) => {
    const args = { file, number, ms };
    const { status, body } = await gateway.api<{ taskId: string }>('POST', '/api/tasks', {
      template: 'note',
      pool: 'x',
      args,
    });
    expect({ status, body }).toMatchObject({ status: 201 });
    return body.taskId;
  };
  const first = await startAgent(token, 'p1');
  // Two that are still running when the copy appears.
  const held = [await submit('held-1', '600000'), await submit('held-2', '600000')];
  const programs = await until(async () => {
    const seen = await notes(file);
    return seen.length === 2 && seen;
  }, 'both programs to run');
  await cp(join(folder, 'p1'), join(folder, 'p2'), { recursive: true, filter: (path) => !/work$|\.sock$/.test(path) });
  const second = await startAgent(token, 'p2');
  const tasks = await Promise.all(Array.from({ length: 20 }, (_, number) => submit(String(number), '20')));

  // Exactly one is valid: the first hears it, ends its programs and itself.
  const { code, err } = await first.ended;
  expect([code, err]).toEqual([4, expect.stringContaining('a newer instance of agent x has registered')]);
  for (const { pid } of programs) expect(await isAlive(pid)).toBe(false);
  expect(second.child.exitCode).toBeNull();

  // What it held runs again on the copy; it is enough to see that once.
  const heldNotes = async () => (await notes(file)).filter(({ task }) => task.startsWith('held'));
  await until(async () => (await heldNotes()).length === 4, 'what it held to run again');
  expect(new Set((await heldNotes()).slice(2).map(({ agent }) => agent))).toEqual(new Set([second.child.pid]));
  for (const id of held) await gateway.api('POST', `/api/tasks/${id}/cancel`);
  const statusOf = async (id: string) => (await gateway.api<{ status: string }>('GET', `/api/tasks/${id}`)).body.status;
  await until(
    async () => (await Promise.all(tasks.map(statusOf))).every((status) => status === 'succeeded'),
    'all tasks to succeed',
    60_000,
  );
  const done = (await notes(file)).filter(({ task }) => !task.startsWith('held'));
  const names = Array.from({ length: 20 }, (_, number) => String(number)).sort();
  expect(done.map(({ task }) => task).sort()).toEqual(names);
  expect(new Set(done.map(({ agent }) => agent))).toEqual(new Set([second.child.pid]));
}, 120_000);

test('an agent loads no database driver, also while it runs a task', async () => {
  const token = await gateway.gateway.rooms.tokens.issue({ agentId: 'x', pools: ['x'], labels: {} });
  const agent = await startAgent(token, 'lean');
  const file = join(folder, 'lean-notes');
  await gateway.api('POST', '/api/tasks', { template: 'note', pool: 'x', args: { file, number: '1', ms: '20' } });
  await until(async () => (await notes(file)).length === 1, 'the program to run');
  const maps = await readFile(`/proc/${agent.child.pid}/maps`, 'utf8');
  expect(maps).toContain(process.execPath);
  expect(maps).not.toMatch(/better[_-]sqlite3|\.node\b/);
  // The same look does find it where it is: here.
  expect(await readFile('/proc/self/maps', 'utf8')).toMatch(/better_sqlite3\.node/);
});
