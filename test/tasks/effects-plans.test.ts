import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as traceQueries from '../../src/http/trace/trace-queries.ts';
import { compileWith, type HotQuery, sqliteDialect } from '../../src/store/dialect.ts';
import type { Reader } from '../../src/store/tx.ts';
import * as effectsQueries from '../../src/tasks/effects-queries.ts';
import { type EffectFilter, selectEffects } from '../../src/tasks/effects-queries.ts';
import { Core, newTask, ROUTE, SESSION } from '../support/core.ts';
import { planOf } from '../support/plans.ts';

const statements = [effectsQueries, traceQueries].flatMap((module) =>
  Object.values(module).filter(
    (value): value is never => typeof value === 'object' && value !== null && 'compile' in value,
  ),
) as HotQuery<never, unknown>[];

/** Thousands of effects of thousands of tasks; few at INIT, few that somebody waits for. */
async function fill(core: Core): Promise<void> {
  const seeds = Array.from({ length: 2_000 }, (_, n) => ({
    task: newTask({ sessionKey: `${SESSION}${n % 50}`, source: 'chat', idempotencyKey: `k${n}` }),
    route: ROUTE,
    goal: 'g',
  }));
  await core.store.write(core.verbs.start, seeds);
  const grants = await core.claimAll('a1', { max: 2_000 });
  await core.store.transact('fill', async (tx) => {
    const rows = grants.map(({ taskId, runId }, n) => [500_000 + n, `t${n % 5}`, `k${n}`, 'ask', null, taskId, runId]);
    await tx.run(effectsQueries.insertEffects, { rows, now: tx.now });
    const settled = grants
      .slice(50)
      .map(({ runId }, n) => [500_050 + n, runId, n % 2 ? 'success' : 'fail', runId, null, null]);
    await tx.run(effectsQueries.markEffects, { rows: settled, now: tx.now });
    const waits = grants.slice(0, 20).map(({ taskId, runId }, n) => [500_000 + n, taskId, runId]);
    await tx.run(effectsQueries.upsertWaits, { rows: waits });
  });
}

const costly = (steps: readonly string[]) =>
  steps.filter((step) =>
    /^SCAN /.test(step) ? !/^SCAN (jsonb_each|\(subquery-\d+\)|CONSTANT ROW|r\b)/.test(step) : /TEMP B-TREE/.test(step),
  );

describe.each(['without', 'with'])('%s statistics of the planner', (kind) => {
  let core: Core;
  let connection: Database.Database;
  beforeAll(async () => {
    core = await Core.open();
    await fill(core);
    connection = new Database(core.path);
    if (kind === 'with') connection.exec('analyze');
  });
  afterAll(async () => {
    connection.close();
    await core.close();
  });

  const plan = (sql: string, values: unknown[]) =>
    (connection.prepare(`explain query plan ${sql}`).all(values) as { detail: string }[]).map(({ detail }) => detail);

  it.each(statements.map((query) => [query.name, query] as const))('%s looks up what it needs', (_name, query) => {
    expect(costly(planOf(connection, query))).toEqual([]);
  });

  it.each([
    { state: 'init' },
    { type: 't3' },
    { state: 'init', type: 't3' },
    { before: 500_900 },
    { state: 'success', before: 500_900 },
  ] satisfies Partial<EffectFilter>[])('a page of %j walks an index', async (filter) => {
    const plans: string[][] = [];
    const reader = {
      dialect: sqliteDialect,
      fetch: async (query: Parameters<Reader['fetch']>[0]) => {
        const compiled = compileWith(sqliteDialect, query);
        plans.push(plan(compiled.sql, [...compiled.parameters]));
        return [];
      },
    } as unknown as Reader;
    await selectEffects(reader, { ...filter, limit: 50 });
    expect(plans).toHaveLength(1);
    expect(costly(plans[0]!)).toEqual([]);
  });

  it('the effects of one task are found by it, and sorted by themselves', async () => {
    const [{ task_id }] = connection.prepare('select task_id from effect limit 1').all() as [{ task_id: number }];
    const found = await selectEffects(core.store, { taskId: task_id, limit: 50 });
    expect(found.map((effect) => effect.task_id)).toEqual([task_id]);
  });
});
