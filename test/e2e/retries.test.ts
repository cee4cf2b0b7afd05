import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';

let processes: Processes;
afterEach(() => processes.end());

interface Task {
  taskId: string;
  status: string;
  attempt: number;
  reason?: string;
  runAt: number;
  runs: { startedAt?: number; outcome?: string }[];
}

/** A gateway whose templates are these. */
async function house(templates: Record<string, string>, env: Record<string, string> = {}) {
  processes = new Processes({ ERRAND_TEMPLATES_DIR: 'templates', ...env });
  const folder = join(processes.folder, 'templates');
  await mkdir(folder, { recursive: true });
  for (const [id, text] of Object.entries(templates)) await writeFile(join(folder, `${id}.yaml`), `id: ${id}\n${text}`);
  return processes.gateway();
}

async function submit(template: string): Promise<() => Promise<Task>> {
  const { taskId } = await processes.api<Task>('POST', '/api/tasks', { template });
  return () => processes.api<Task>('GET', `/api/tasks/${taskId}`);
}

describe('kill -9', () => {
  it('A18: of the gateway after every failure: three executions in all, each after its pause, then one dead letter', async () => {
    const trace = () => join(processes.folder, 'trace');
    let gateway = await house({
      poison: `command: [sh, -c, 'echo x >> "$HOME/trace"; exit 75']\nretry: { max: 3, base: 1500ms, factor: 1, jitter: 0 }\n`,
    });
    await processes.agent('agent-1', await processes.agentToken('agent-1'));
    const task = await submit('poison');
    for (const attempt of [1, 2]) {
      await until(async () => {
        const seen = await task();
        return seen.attempt >= attempt && (seen.status === 'queued' || seen.status === 'failed');
      }, `failure ${attempt}`);
      await processes.kill(gateway);
      gateway = await processes.gateway();
    }
    await until(async () => (await task()).status === 'failed', 'the last failure', 30_000);
    await processes.kill(gateway);
    await processes.gateway();
    const seen = await task();
    expect(seen).toMatchObject({ status: 'failed', attempt: 3, reason: 'attempts_used_up' });
    expect(await readFile(trace(), 'utf8')).toBe('x\nx\nx\n');
    const starts = seen.runs.map(({ startedAt }) => startedAt!);
    for (const [index, start] of starts.slice(1).entries())
      expect(start - starts[index]!).toBeGreaterThanOrEqual(1_500);
    const { deadLetters } = await processes.api<{ deadLetters: unknown[] }>('GET', '/api/dead-letters');
    expect(deadLetters).toMatchObject([{ taskId: seen.taskId, state: 'dead', deaths: 1, attempt: 3 }]);
  }, 120_000);

  it('of the agent in the middle of an onLost: ask task: nobody runs it again before a person says so', async () => {
    await house(
      { pay: `command: [sh, -c, 'echo x >> "$HOME/trace"; sleep 20']\nonLost: ask\n`, after: 'command: ["true"]\n' },
      { ERRAND_LEASE_MS: '2000', ERRAND_HEARTBEAT_MS: '500' },
    );
    const first = await processes.agent('agent-1', await processes.agentToken('agent-1'));
    const task = await submit('pay');
    await until(async () => (await task()).status === 'running', 'the task to run');
    await processes.kill(first);
    await processes.agent('agent-2', await processes.agentToken('agent-2'));
    await until(async () => (await task()).status === 'waiting', 'the question', 30_000);
    expect(await task()).toMatchObject({ reason: 'lost_ask', runs: [{ outcome: 'lost' }] });
    // The other agent is there and works, but not on this.
    const after = await submit('after');
    await until(async () => (await after()).status === 'succeeded', 'another task');
    expect(await readFile(join(processes.folder, 'trace'), 'utf8')).toBe('x\n');
    await processes.api('POST', `/api/tasks/${(await task()).taskId}/retry`);
    await until(async () => (await task()).status === 'running', 'the second run');
    await until(async () => (await readFile(join(processes.folder, 'trace'), 'utf8')) === 'x\nx\n', 'its trace');
    await processes.api('POST', `/api/tasks/${(await task()).taskId}/cancel`);
    await until(async () => (await task()).status === 'cancelled', 'the cancel', 30_000);
  }, 120_000);
});
