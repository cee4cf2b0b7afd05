import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';

let processes: Processes;
afterEach(() => processes.end());

interface Task {
  taskId: string;
  flowId: string;
  status: string;
  runs: { outcome?: string }[];
}

/** A step writes its name when it begins and when it ends; what it does in between takes a moment. */
const STEP = `id: step
args: { name: { type: string, pattern: "^[a-z]$" }, exit: { type: integer, default: 0 } }
command: [sh, -c, 'echo "begin $ERRAND_ARG_NAME" >> "$HOME/trace"; sleep 0.4; echo "end $ERRAND_ARG_NAME" >> "$HOME/trace"; exit "$ERRAND_ARG_EXIT"']
`;

async function house() {
  processes = new Processes({ ERRAND_TEMPLATES_DIR: 'templates', ERRAND_LEASE_MS: '3000', ERRAND_HEARTBEAT_MS: '500' });
  await mkdir(join(processes.folder, 'templates'), { recursive: true });
  await writeFile(join(processes.folder, 'templates', 'step.yaml'), STEP);
  const gateway = await processes.gateway();
  await processes.agent('agent-1', await processes.agentToken('agent-1'), { AGENT_CONCURRENCY: '4' });
  return gateway;
}

const step = (name: string, needs: number[] = [], exit = 0) => ({ template: 'step', args: { name, exit }, needs });
const submit = async (tasks: object[]) =>
  (await processes.api<{ tasks: Task[] }>('POST', '/api/tasks/batch', tasks)).tasks;
const flowOf = (task: Task) => processes.api<{ status: string; tasks: Task[] }>('GET', `/api/flows/${task.flowId}`);
const trace = async () =>
  (await readFile(join(processes.folder, 'trace'), 'utf8').catch(() => '')).split('\n').filter((line) => line !== '');

describe('kill -9 of the gateway in the middle of a diamond', () => {
  it.each([
    ['right after the end of its first task', 'end a'],
    ['while its two middle tasks run', 'begin c'],
    ['right after the end of one of its middle tasks', 'end b'],
  ])(
    '%s: every task runs once, in the order of the needs',
    async (_name, moment) => {
      const gateway = await house();
      const tasks = await submit([step('a'), step('b', [0]), step('c', [0]), step('d', [1, 2])]);
      await until(async () => (await trace()).includes(moment), moment, 30_000);
      await processes.kill(gateway);
      await processes.gateway();
      await until(async () => (await flowOf(tasks[0]!)).status === 'finished', 'the flow to finish', 60_000);
      const lines = await trace();
      expect([...lines].sort()).toEqual([
        'begin a',
        'begin b',
        'begin c',
        'begin d',
        'end a',
        'end b',
        'end c',
        'end d',
      ]);
      const place = (line: string) => lines.indexOf(line);
      for (const [on, task] of ['ab', 'ac', 'bd', 'cd'])
        expect(place(`begin ${task}`)).toBeGreaterThan(place(`end ${on}`));
      for (const { taskId } of tasks) {
        const { status, runs } = await processes.api<Task>('GET', `/api/tasks/${taskId}`);
        expect([status, runs.length]).toEqual(['succeeded', 1]);
      }
    },
    120_000,
  );

  it('A62: after a failure: the last task is skipped once, and the flow has failed after the other middle task', async () => {
    const gateway = await house();
    const tasks = await submit([step('a'), step('b', [0], 3), step('c', [0]), step('d', [1, 2])]);
    await until(async () => (await trace()).includes('end b'), 'the end of b', 30_000);
    await processes.kill(gateway);
    await processes.gateway();
    await until(async () => (await flowOf(tasks[0]!)).status === 'failed', 'the flow to fail', 60_000);
    expect((await flowOf(tasks[0]!)).tasks.map(({ status }) => status)).toEqual([
      'succeeded',
      'failed',
      'succeeded',
      'cancelled',
    ]);
    expect((await trace()).filter((line) => line.endsWith('d'))).toEqual([]);
  }, 120_000);
});
