import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { KINDS } from '../../src/retention/prune-queries.ts';
import type { HotQuery } from '../../src/store/dialect.ts';
import { Core } from '../support/core.ts';
import { planOf } from '../support/plans.ts';

/** Statements of the pruning; those of the audit are checked with all others (test/store/plans.test.ts). */
const statements = KINDS.flatMap((kind) => [
  kind.candidates,
  kind.due,
  ...kind.parts.flatMap((part) => [part.rows, part.remove]),
]) as unknown as HotQuery<never, unknown>[];

let core: Core;
let connection: Database.Database;
beforeAll(async () => {
  core = await Core.open();
  connection = new Database(core.path);
});
afterAll(async () => {
  connection.close();
  await core.close();
});

const plan = (query: HotQuery<never, unknown>) => planOf(connection, query);

it('A66: every kind has its statements, and the walk starts behind a key instead of at the beginning', () => {
  expect(statements.length).toBe(KINDS.length * 4 + 14);
  for (const kind of KINDS) {
    const [first] = plan(kind.candidates as unknown as HotQuery<never, unknown>);
    expect({ table: kind.table, first }).toEqual({
      table: kind.table,
      first: expect.stringMatching(/^SEARCH t USING (INTEGER PRIMARY KEY \(rowid>\?\)|PRIMARY KEY \(token_hash>\?\))$/),
    });
  }
});

describe('no statement walks through a table or sorts one', () => {
  it.each(statements.map((query) => [query.name, query] as const))('%s', (_name, query) => {
    const bad = plan(query).filter(
      (step) => (/^SCAN /.test(step) && !/^SCAN jsonb_each/.test(step)) || /TEMP B-TREE/.test(step),
    );
    expect(bad).toEqual([]);
  });

  it('neither does what the database itself asks for its foreign keys', () => {
    const parents = connection
      .prepare(
        `select m.name as child, f."from" as "column" from sqlite_master as m, pragma_foreign_key_list(m.name) as f where m.type = 'table'`,
      )
      .all() as { child: string; column: string }[];
    expect(parents.length).toBeGreaterThan(3);
    for (const { child, column } of parents) {
      const steps = connection.prepare(`explain query plan select 1 from "${child}" where "${column}" = 1`).all() as {
        detail: string;
      }[];
      expect({ child, column, step: steps[0]!.detail }).toMatchObject({ step: expect.stringMatching(/^SEARCH/) });
    }
  });
});
