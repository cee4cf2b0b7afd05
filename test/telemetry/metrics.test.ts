import { expect, test } from 'vitest';
import { createFinishedTasks } from '../../src/telemetry/finished.ts';
import { createMetrics, type Figures } from '../../src/telemetry/metrics.ts';

const LABELS = {
  liveStates: ['queued', 'running'],
  finalStates: ['succeeded', 'failed'],
  outboxStates: ['pending', 'dead'],
  refusals: ['not_paired', 'role'],
};
const FIGURES: Figures = {
  now: 60_000,
  tasks: new Map([['queued', 3]]),
  finished: new Map([['succeeded', 2]]),
  outbox: new Map([['dead', 1]]),
  refused: new Map([['role', 3]]),
  inboxNew: 4,
  oldest: { task: 10_000, outbox: null, inbox: 59_500 },
  agents: { online: 2, offline: 1 },
  breakers: new Map([['psb', 2]]),
  lanes: new Map([
    ['main', null],
    ['cron', 57_500],
  ]),
  parkedPulls: 2,
  store: { transactions: 7, units: 9, rollbacks: 1, walBytes: 4_096 },
};

function valuesOf(text: string): Map<string, number> {
  return new Map(
    text
      .split('\n')
      .filter((line) => line.startsWith('errand_'))
      .map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]),
  );
}

test('a scrape says what was read, ages in seconds, and 0 where nothing is', async () => {
  const values = valuesOf(await createMetrics('1.2.3', LABELS).text(FIGURES));
  expect(Object.fromEntries(values)).toMatchObject({
    'errand_info{version="1.2.3"}': 1,
    'errand_tasks{state="queued"}': 3,
    'errand_tasks{state="running"}': 0,
    'errand_tasks_finished_total{state="succeeded"}': 2,
    errand_task_oldest_due_seconds: 50,
    'errand_outbox_messages{state="dead"}': 1,
    errand_outbox_oldest_pending_seconds: 0,
    'errand_access_refused_total{reason="role"}': 3,
    'errand_access_refused_total{reason="not_paired"}': 0,
    errand_inbox_new: 4,
    errand_inbox_oldest_new_seconds: 0.5,
    'errand_agents{state="online"}': 2,
    errand_agent_pulls_parked: 2,
    'errand_breaker_state{name="psb"}': 2,
    'errand_lane_waiting_seconds{lane="main"}': 0,
    'errand_lane_waiting_seconds{lane="cron"}': 2.5,
    errand_store_transactions_total: 7,
    errand_store_wal_bytes: 4_096,
  });
});

test('a second scrape repeats totals instead of adding them up', async () => {
  const metrics = createMetrics('1.2.3', LABELS);
  await metrics.text(FIGURES);
  const values = valuesOf(await metrics.text(FIGURES));
  expect(values.get('errand_store_transactions_total')).toBe(7);
  expect(values.get('errand_tasks_finished_total{state="succeeded"}')).toBe(2);
});

test('a state that is in no closed set makes no series', async () => {
  const metrics = createMetrics('1.2.3', LABELS);
  const before = [...valuesOf(await metrics.text(FIGURES)).keys()];
  const strange = new Map([['k3f9', 1]]);
  const after = valuesOf(
    await metrics.text({ ...FIGURES, tasks: strange, finished: strange, outbox: strange, refused: strange }),
  );
  expect([...after.keys()]).toEqual(before);
});

test('the event loop and the memory of the process are measured', async () => {
  const text = await createMetrics('1.2.3', LABELS).text(FIGURES);
  expect(text).toContain('nodejs_eventloop_lag_seconds');
  expect(text).toContain('process_resident_memory_bytes');
});

test('an end counts once its transaction is on disk, never when it is rolled back', async () => {
  const finished = createFinishedTasks();
  const ended = [
    { type: 'task.ended', state: 'failed' },
    { type: 'task.state' },
    { type: 'task.ended', state: 'failed' },
  ];
  const commits: (() => void)[] = [];
  await finished.onTaskEvents({ afterCommit: (action) => commits.push(action) }, ended);
  expect(finished.counts().size).toBe(0);
  for (const action of commits) action();
  expect(finished.counts()).toEqual(new Map([['failed', 2]]));
});
