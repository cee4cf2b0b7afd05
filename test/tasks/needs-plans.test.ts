import Database from 'better-sqlite3';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { endGraphs, liveTasksOf, overdueFlows, requestFlowCancel } from '../../src/flows/graph-queries.ts';
import { graphCounts, graphResults, graphTroubles } from '../../src/notifications/queries.ts';
import { needlessWaits } from '../../src/retention/audit-queries.ts';
import type { HotQuery } from '../../src/store/dialect.ts';
import {
  doomedTasks,
  markNeeded,
  meetNeeds,
  neededBy,
  neededTasks,
  needsOf,
  readyTasks,
  releaseTasks,
  skippedTasks,
} from '../../src/tasks/needs-queries.ts';
import { insertTasks } from '../../src/tasks/queries.ts';
import { Core, newTask } from '../support/core.ts';
import { diamond, makeGraph, succeed } from '../support/graphs.ts';
import { planOf } from '../support/plans.ts';

let core: Core;
let connection: Database.Database;
beforeAll(async () => {
  core = await Core.open();
  await Promise.all(Array.from({ length: 500 }, () => core.ask()));
  await core.createAll(Array.from({ length: 1_000 }, () => newTask()));
  const grants = await core.claimAll('a1', { max: 900 });
  await Promise.all(grants.map((grant) => core.tell(grant, { type: 'succeeded', summary: 'ok' })));
  for (let n = 0; n < 50; n += 1) await makeGraph(core, diamond(), n % 2 === 0 ? { deadlineMs: 1_000 } : {});
  const [first] = await makeGraph(core, diamond());
  await succeed(core, first!);
  connection = new Database(core.path);
  connection.exec('analyze');
});
afterAll(async () => {
  connection.close();
  await core.close();
});

const plan = <P extends Record<string, unknown>>(query: HotQuery<P, unknown>) =>
  planOf(connection, query).filter((detail) => /^(SCAN|SEARCH|USE TEMP)/.test(detail));

it.each<[string, HotQuery<never, unknown>]>(
  Object.entries({
    doomedTasks,
    markNeeded,
    meetNeeds,
    neededTasks,
    needsOf,
    readyTasks,
    releaseTasks,
    skippedTasks,
    endGraphs,
    liveTasksOf,
    requestFlowCancel,
  }) as unknown as [string, HotQuery<never, unknown>][],
)('%s goes from the given rows along keys and indexes, and walks through no table', (_name, query) => {
  const steps = plan(query);
  expect(steps.length).toBeGreaterThan(0);
  for (const step of steps)
    expect(step).toMatch(/^(SCAN (jsonb_each|doomed|skipped)|SEARCH|USE TEMP B-TREE FOR (ORDER|GROUP) BY)/);
});

it('the needs of a task are found by it, and its dependents by the index of the needed', () => {
  expect(plan(meetNeeds)).toEqual([
    expect.stringMatching(/^SCAN jsonb_each/),
    expect.stringMatching(/^SEARCH need USING INDEX need_on \(on_task_id=\?\)/),
    expect.stringMatching(/^SEARCH ended USING INTEGER PRIMARY KEY/),
  ]);
  expect(plan(neededBy)[0]).toMatch(/^SEARCH need USING (COVERING )?INDEX need_on \(on_task_id=\?\)/);
  expect(plan(readyTasks)).toContainEqual(
    expect.stringMatching(/^SEARCH need USING COVERING INDEX need_unmet \(task_id=\?\)/),
  );
});

it('overdue graphs are found by the index of deadlines', () => {
  expect(plan(overdueFlows)).toEqual([
    expect.stringMatching(/^SEARCH flow USING (COVERING )?INDEX flow_deadline \(deadline_at>\? AND deadline_at<\?\)/),
  ]);
});

it('what is told of a graph is found by its flow', () => {
  for (const query of [graphCounts, graphTroubles, graphResults])
    expect(plan(query as HotQuery<never, unknown>)[0]).toMatch(/^SEARCH task USING INDEX task_flow \(flow_id=\?\)/);
});

it('the audit of waits reads what waits', () => {
  expect(plan(needlessWaits)[0]).toMatch(/^SEARCH t USING INDEX task_status \(status=\?/);
});

it('the insert of ordinary tasks does not look at needs', () => {
  expect(plan(insertTasks)[0]).toMatch(/^SCAN jsonb_each/);
  expect(plan(insertTasks).filter((step) => step.includes('need'))).toEqual([]);
});
