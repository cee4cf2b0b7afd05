import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, describe, expect, it } from 'vitest';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Waits until the file `go` is there. */
const TEMPLATE = `
id: job
command: [sh, -c, 'while [ ! -e "$1" ]; do sleep 0.05; done', sh, "{{go}}"]
args: { go: { type: string, required: true } }
lane: cron
retry: { max: 3, base: 100ms }
`;

interface TaskSeen {
  taskId: string;
  status: string;
  attempt: number;
}

async function house(env: Record<string, string> = {}): Promise<{ processes: Processes; go: (n: number) => string }> {
  const processes = new Processes(env);
  cleanups.push(() => processes.end());
  await mkdir(join(processes.folder, 'templates'));
  await writeFile(join(processes.folder, 'templates', 'job.yaml'), TEMPLATE);
  return { processes, go: (n) => join(processes.folder, `go-${n}`) };
}

const submit = (processes: Processes, go: string) =>
  processes.api<TaskSeen>('POST', '/api/tasks', { template: 'job', args: { go } });
const statuses = async (processes: Processes) =>
  (await processes.api<{ tasks: TaskSeen[] }>('GET', '/api/tasks')).tasks.map(({ status }) => status).reverse();

/** Runs of the lane that live, and the most that ever lived at once, by the rows. */
function runsOf({ folder }: Processes): { live: number; mostAtOnce: number } {
  const db = new Database(join(folder, 'state', 'errand.db'), { readonly: true });
  try {
    const runs = db.prepare('select claimed_at, ended_at, lease_until from run order by id').all() as {
      claimed_at: number;
      ended_at: number | null;
      lease_until: number | null;
    }[];
    const at = (moment: number) =>
      runs.filter((run) => run.claimed_at <= moment && (run.ended_at ?? Number.POSITIVE_INFINITY) > moment).length;
    return {
      live: runs.filter((run) => run.lease_until !== null).length,
      mostAtOnce: Math.max(0, ...runs.map((run) => at(run.claimed_at))),
    };
  } finally {
    db.close();
  }
}

describe('kill -9 of the gateway while lane cron is busy', () => {
  it('leaves exactly one running afterwards, and the next starts when that one has ended', async () => {
    const { processes, go } = await house();
    let gateway = await processes.gateway();
    for (const name of ['agent-1', 'agent-2'])
      await processes.agent(name, await processes.agentToken(name), { AGENT_CONCURRENCY: '2' });
    for (let n = 0; n < 4; n += 1) await submit(processes, go(n));
    await until(async () => (await statuses(processes))[0] === 'running', 'the first to run');
    for (let kill = 0; kill < 2; kill += 1) {
      await processes.kill(gateway);
      gateway = await processes.gateway();
      // Both agents have asked for work again.
      await until(async () => {
        const stats = await processes.api<{ parkedPulls: number }>('GET', '/api/stats');
        return stats.parkedPulls === 2;
      }, 'both agents to wait for work');
      expect(await statuses(processes)).toEqual(['running', 'queued', 'queued', 'queued']);
      expect(runsOf(processes)).toEqual({ live: 1, mostAtOnce: 1 });
    }
    for (let n = 0; n < 4; n += 1) {
      await writeFile(go(n), '');
      await until(async () => (await statuses(processes))[n] === 'succeeded', `task ${n} to succeed`);
    }
    expect(runsOf(processes)).toEqual({ live: 0, mostAtOnce: 1 });
  }, 120_000);

  it('and of its agent: the lost run frees its slot, and the other agent takes over, one at a time', async () => {
    const { processes, go } = await house({ ERRAND_LEASE_MS: '2000', ERRAND_HEARTBEAT_MS: '500' });
    const gateway = await processes.gateway();
    const agent = await processes.agent('agent-1', await processes.agentToken('agent-1'));
    for (let n = 0; n < 2; n += 1) await submit(processes, go(n));
    await until(async () => (await statuses(processes))[0] === 'running', 'the first to run');
    await processes.kill(agent);
    await processes.kill(gateway);
    await processes.gateway();
    await processes.agent('agent-2', await processes.agentToken('agent-2'), { AGENT_CONCURRENCY: '2' });
    for (let n = 0; n < 2; n += 1) await writeFile(go(n), '');
    await until(
      async () => (await statuses(processes)).every((status) => status === 'succeeded'),
      'both to succeed',
      60_000,
    );
    expect(runsOf(processes)).toEqual({ live: 0, mostAtOnce: 1 });
  }, 120_000);
});

describe('a drain', () => {
  it('survives kill -9 and SIGTERM, loses nothing, and ends with --off; SIGTERM alone sets none', async () => {
    const { processes, go } = await house();
    let gateway = await processes.gateway();
    await processes.agent('agent-1', await processes.agentToken('agent-1'), { AGENT_CONCURRENCY: '2' });
    await submit(processes, go(0));
    await until(async () => (await statuses(processes))[0] === 'running', 'the first to run');
    await processes.api('POST', '/api/drain', { on: true });
    await submit(processes, go(1));
    await processes.kill(gateway);
    gateway = await processes.gateway();
    await submit(processes, go(2));
    // What runs goes on to its end while the gateway drains.
    await writeFile(go(0), '');
    await until(async () => (await statuses(processes))[0] === 'succeeded', 'the first to succeed');
    const gone = new Promise((resolve) => gateway.once('exit', resolve));
    gateway.kill('SIGTERM');
    expect(await gone).toBe(0);
    await processes.gateway();
    expect(await processes.api('GET', '/readyz')).toMatchObject({ ready: true, draining: { by: 'api:admin' } });
    expect(await statuses(processes)).toEqual(['succeeded', 'queued', 'queued']);
    for (const n of [1, 2]) await writeFile(go(n), '');
    await processes.api('POST', '/api/drain', { on: false });
    await until(async () => (await statuses(processes)).every((status) => status === 'succeeded'), 'all to succeed');
    expect(await processes.api('GET', '/readyz')).not.toHaveProperty('draining');
  }, 120_000);
});
