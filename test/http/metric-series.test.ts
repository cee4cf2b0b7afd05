import { sql } from 'kysely';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { TaskLine } from '../../src/tasks/claim.ts';
import { createTasksVerb } from '../../src/tasks/create.ts';
import { reportRunsVerb } from '../../src/tasks/report.ts';
import { newTask } from '../support/core.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await TestGateway.start();
});
afterAll(() => gateway?.stop());

/** Name and labels of every series of a scrape, and the values of ours. */
async function scrape(): Promise<Map<string, number>> {
  const text = await (await fetch(`${gateway.url}/metrics`)).text();
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]),
  );
}

let seq = 0;
/** Tasks whose every text is their own, half of which fail with an error of its own. */
async function work(from: number, to: number): Promise<void> {
  const { store, emit } = gateway.gateway.rooms;
  const verb = reportRunsVerb(emit);
  const create = createTasksVerb(emit);
  for (let n = from; n < to; n += 500) {
    const tasks = Array.from({ length: Math.min(500, to - n) }, (_, i) =>
      newTask({
        template: 'hello',
        pool: 'series',
        label: `label ${n + i}`,
        args: { name: `person ${n + i}` },
        idempotencyKey: `key ${n + i}`,
      }),
    );
    await store.write(create, tasks);
    const claim = {
      agentId: `agent-${n}`,
      instanceId: 'i',
      queues: ['series/shell'],
      max: 500,
      leaseMs: 60_000,
      holding: null,
    };
    const grants = (await store.write(new TaskLine().claim, [claim]))[0]!;
    await store.write(
      verb,
      grants.map((grant, i) => {
        seq += 1;
        const news =
          i % 2
            ? ({ type: 'succeeded', summary: `summary ${n + i}` } as const)
            : ({ type: 'failed', errorClass: 'permanent', error: `error ${n + i}` } as const);
        return { agentId: `agent-${n}`, runId: grant.runId, leaseToken: grant.leaseToken, seq, news };
      }),
    );
  }
}

it('A67: the series are the same after 100 and after 5,000 tasks, and gauges and counters say what the rows say', async () => {
  await work(0, 100);
  // A first scrape makes the series of the process itself (garbage collections and the like appear when they happen).
  const ours = (series: Map<string, number>) => [...series.keys()].filter((name) => name.startsWith('errand_')).sort();
  const few = await scrape();
  await work(100, 5_000);
  const many = await until(async () => {
    const series = await scrape();
    return series.get('errand_tasks_finished_total{state="succeeded"}') === 2_500 ? series : undefined;
  }, 'a fresh reading');
  expect(ours(many)).toEqual(ours(few));
  expect(many.size).toBeLessThan(few.size + 30);
  const labels = new Set(ours(many).flatMap((name) => [...name.matchAll(/(\w+)="/g)].map(([, label]) => label)));
  expect([...labels].filter((label) => !['state', 'version', 'reason', 'name', 'lane', 'le'].includes(label!))).toEqual(
    [],
  );
  expect(many.get('errand_tasks_finished_total{state="failed"}')).toBe(2_500);
  const rows = await gateway.gateway.rooms.store.fetch(
    sql<{ status: string; n: number }>`select status, count(*) as n from task group by status order by status`,
  );
  expect(rows).toEqual([
    { status: 'failed', n: 2_500 },
    { status: 'succeeded', n: 2_500 },
  ]);
  expect(many.get('errand_tasks{state="queued"}')).toBe(0);
}, 120_000);
