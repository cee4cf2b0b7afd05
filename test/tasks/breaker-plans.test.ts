import Database from 'better-sqlite3';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { HotQuery } from '../../src/store/dialect.ts';
import { breakersByName, nextInBand, runsJustEnded, saveBreakers } from '../../src/tasks/breaker-queries.ts';
import { Core, newTask } from '../support/core.ts';
import { planOf } from '../support/plans.ts';

let core: Core;
let connection: Database.Database;
beforeAll(async () => {
  core = await Core.open();
  const tasks = Array.from({ length: 1_000 }, (_, n) => newTask({ template: `t${n % 7}`, pool: `p${n % 3}` }));
  await core.createAll(tasks);
  const grants = await core.claimAll('a1', { queues: ['p0/shell', 'p1/shell'], max: 500 });
  await Promise.all(grants.map((grant) => core.tell(grant, { type: 'succeeded', summary: 'ok' })));
  connection = new Database(core.path);
  connection.exec('analyze');
});
afterAll(async () => {
  connection.close();
  await core.close();
});

const plan = <P extends Record<string, unknown>>(query: HotQuery<P, unknown>) =>
  planOf(connection, query).filter((detail) => /^(SCAN|SEARCH|USE TEMP)/.test(detail));

it('breakers are found and written by their name', () => {
  expect(plan(breakersByName)).toEqual([
    expect.stringMatching(/^SCAN jsonb_each/),
    expect.stringMatching(/^SEARCH breaker USING PRIMARY KEY \(name=\?\)/),
    expect.stringMatching(/^SEARCH run USING INTEGER PRIMARY KEY/),
  ]);
  expect(plan(saveBreakers)).toEqual([expect.stringMatching(/^SCAN jsonb_each/)]);
});

it('of a task the last runs alone are looked at', () => {
  expect(plan(runsJustEnded)).toEqual([
    expect.stringMatching(/^SCAN jsonb_each/),
    expect.stringMatching(/^SEARCH run USING INTEGER PRIMARY KEY \(rowid=\?\)/),
    expect.stringMatching(/^SEARCH late USING COVERING INDEX run_task \(task_id=\?\)/),
  ]);
});

it('of a band its first tasks are looked at', () => {
  expect(plan(nextInBand)).toEqual([
    expect.stringMatching(/^SEARCH task USING INDEX task_claim \(stream_id=\? AND priority=\? AND run_at<\?\)/),
  ]);
});
