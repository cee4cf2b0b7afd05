import Database from 'better-sqlite3';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { HotQuery } from '../../src/store/dialect.ts';
import { awaitedEffects, countBefore, countDue, liveRunsById } from '../../src/tasks/explain-queries.ts';
import { Core, newTask } from '../support/core.ts';
import { planOf } from '../support/plans.ts';

let core: Core;
let connection: Database.Database;
beforeAll(async () => {
  core = await Core.open();
  const tasks = Array.from({ length: 1_000 }, (_, n) => newTask({ template: `t${n % 7}`, pool: `p${n % 3}` }));
  await core.createAll(tasks);
  await core.claimAll('a1', { queues: ['p0/shell', 'p1/shell'], max: 100 });
  connection = new Database(core.path);
  connection.exec('analyze');
});
afterAll(async () => {
  connection.close();
  await core.close();
});

const plan = <P extends Record<string, unknown>>(query: HotQuery<P, unknown>) =>
  planOf(connection, query).filter((detail) => /^(SCAN|SEARCH)/.test(detail));

const ROWS = expect.stringMatching(/^SCAN jsonb_each/);

it('runs and effects are found by their keys', () => {
  expect(plan(liveRunsById)).toEqual([
    ROWS,
    expect.stringMatching(/^SEARCH run USING INTEGER PRIMARY KEY/),
    expect.stringMatching(/^SEARCH event USING PRIMARY KEY \(task_id=\? AND run_id=\?\)/),
  ]);
  expect(plan(awaitedEffects)).toEqual([
    ROWS,
    expect.stringMatching(/^SEARCH effect_wait USING (COVERING )?INDEX \w+ \(task_id=\?/),
    expect.stringMatching(/^SEARCH effect USING INTEGER PRIMARY KEY/),
  ]);
});

it('tasks of a band are counted along the index of claims, and no more than asked for', () => {
  const along = (range: string) =>
    expect.stringMatching(
      new RegExp(`^SEARCH task USING COVERING INDEX task_claim \\(stream_id=\\? AND priority=\\? AND ${range}`),
    );
  expect(plan(countDue)).toEqual([ROWS, along('run_at<\\?'), expect.stringMatching(/^SCAN \(subquery/)]);
  expect(plan(countBefore)).toEqual([ROWS, along('run_at<\\?'), expect.stringMatching(/^SCAN \(subquery/)]);
});
