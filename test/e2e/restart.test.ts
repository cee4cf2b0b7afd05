import { afterEach, expect, it } from 'vitest';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function house(env: Record<string, string> = {}): Processes {
  const processes = new Processes(env);
  cleanups.push(() => processes.end());
  return processes;
}

interface TaskSeen {
  taskId: string;
  status: string;
  runAt: number;
  runs: { agentId: string; outcome?: string }[];
}
const FINAL = new Set(['succeeded', 'failed', 'timed_out', 'cancelled', 'lost']);

it('A48: what was acknowledged is there after kill -9, 20 times', async () => {
  const processes = house();
  let gateway = await processes.gateway();
  const acknowledged = new Set<string>();
  for (let round = 0; round < 20; round += 1) {
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, n) =>
        processes.api<TaskSeen>('POST', '/api/tasks', { template: 'hello', args: { name: `${round}.${n}` } }),
      ),
    );
    for (const { taskId } of answers) acknowledged.add(taskId);
    await processes.kill(gateway);
    gateway = await processes.gateway();
  }
  expect(acknowledged.size).toBe(160);
  const { tasks } = await processes.api<{ tasks: TaskSeen[] }>('GET', '/api/tasks?limit=200');
  expect(new Set(tasks.map(({ taskId }) => taskId))).toEqual(acknowledged);
}, 240_000);

it('A47: after kill -9 of the gateway nothing stays running: who lives goes on, who died is replaced, all else keeps its plan', async () => {
  const processes = house({ ERRAND_LEASE_MS: '6000', ERRAND_HEARTBEAT_MS: '500', ERRAND_CANCEL_GRACE_MS: '5000' });
  const gateway = await processes.gateway();
  const submit = async (template: string, args: Record<string, unknown>, more: Record<string, unknown> = {}) =>
    (await processes.api<TaskSeen>('POST', '/api/tasks', { template, args, ...more })).taskId;
  const task = (id: string) => processes.api<TaskSeen>('GET', `/api/tasks/${id}`);
  const runs = (id: string) => until(async () => (await task(id)).status === 'running', `${id} to run`);

  await processes.agent('agent-1', await processes.agentToken('agent-1'), { AGENT_CONCURRENCY: '2' });
  const alive = await submit('sleep', { seconds: 6 });
  const called = await submit('sleep', { seconds: 600 });
  await Promise.all([runs(alive), runs(called)]);
  const second = await processes.agent('agent-2', await processes.agentToken('agent-2'), { AGENT_CONCURRENCY: '1' });
  const orphan = await submit('sleep', { seconds: 3 });
  await runs(orphan);
  const queued = await submit('hello', { name: 'queued' });
  const runAt = Date.now() + 8_000;
  const later = await submit('hello', { name: 'later' }, { runAt });
  await processes.api('POST', `/api/tasks/${called}/cancel`);
  await Promise.all([processes.kill(gateway), processes.kill(second)]);
  await processes.gateway();

  const all = [alive, called, orphan, queued, later];
  const seen = await until(async () => {
    const tasks = await Promise.all(all.map(task));
    return tasks.every(({ status }) => FINAL.has(status)) ? tasks : undefined;
  }, 'everything to be over');
  expect(seen.map(({ status }) => status)).toEqual(['succeeded', 'cancelled', 'succeeded', 'succeeded', 'succeeded']);
  const outcomes = seen.map((one) => one.runs.map(({ agentId, outcome }) => `${agentId} ${outcome}`));
  expect(outcomes[0]).toEqual(['agent-1 succeeded']);
  expect(outcomes[2]).toEqual(['agent-2 lost', 'agent-1 succeeded']);
  expect(seen[4]!.runAt).toBe(runAt);
  const stats = await processes.api<{ tasks: Record<string, number> }>('GET', '/api/stats');
  expect(Object.values(stats.tasks).reduce((sum, count) => sum + count, 0)).toBe(0);
  expect(await processes.api('GET', '/api/tasks/audit?stale=1s')).toEqual({ findings: [], more: false });
}, 120_000);
