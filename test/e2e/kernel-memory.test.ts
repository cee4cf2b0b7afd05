import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type MemoryGroup, memoryGroup } from '../support/memory-group.ts';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';

const MIB = 1024 * 1024;

let group: MemoryGroup;
let templates: string;
let processes: Processes;
beforeAll(async () => {
  group = memoryGroup(300 * MIB);
  templates = await mkdtemp(join(tmpdir(), 'errand-hogs-'));
  processes = new Processes({ ERRAND_TEMPLATES_DIR: templates });
});
afterAll(async () => {
  await processes.end();
  await rm(templates, { recursive: true, force: true });
  const { remove } = group;
  if (remove) await until(remove, 'the control group to be empty');
});

async function template(id: string, command: string[]): Promise<void> {
  const lines = [
    `id: ${id}`,
    `title: { en: ${id} }`,
    `command: ${JSON.stringify(command)}`,
    'limits: { memory: 4GiB }',
    'retry: { max: 3 }',
  ];
  await writeFile(join(templates, `${id}.yaml`), lines.join('\n'));
}

interface TaskSeen {
  status: string;
  error?: string;
  errorClass?: string;
  runs: unknown[];
}

async function ended(name: string): Promise<TaskSeen> {
  const { taskId } = await processes.api<{ taskId: string }>('POST', '/api/tasks', { template: name });
  return until(async () => {
    const task = await processes.api<TaskSeen & { endedAt?: number }>('GET', `/api/tasks/${taskId}`);
    return task.endedAt === undefined ? undefined : task;
  }, `${name} to end`);
}

it('A70: a program that the kernel kills for want of memory fails for that reason, once, and its agent goes on', async ({
  skip,
}) => {
  if (!group.folder) return skip(`no control group can be made here: ${group.unavailable}`);
  // Every megabyte is written to, so that it is really taken.
  const hog = `const all = []; for (let n = 0; n < 600; n += 1) all.push(Buffer.alloc(${MIB}, 1));`;
  await template('hog', ['node', '-e', hog]);
  await template('inshell', ['sh', '-c', `node -e '${hog}'; echo fine`]);
  await template('small', ['echo', 'still here']);
  await processes.gateway();
  const agent = await processes.agent('a1', await processes.agentToken('a1'), {}, group.folder);
  for (const name of ['hog', 'inshell']) {
    const task = await ended(name);
    expect(task, name).toMatchObject({ status: 'failed', runs: [{ outcome: 'failed' }] });
    expect(task.error, name).toMatch(/the kernel killed .* for want of memory/);
  }
  expect(await ended('small')).toMatchObject({ status: 'succeeded', summary: 'still here' });
  expect(agent.exitCode).toBeNull();
}, 120_000);
