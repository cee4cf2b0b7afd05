import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openQuestions } from '../../src/commands/confirm-queries.ts';
import { askerOfFlow } from '../../src/commands/owner-queries.ts';
import { parkedMessages } from '../../src/intake/parked-queries.ts';
import { saidBefore } from '../../src/intake/queries.ts';
import { compileWith, sqliteDialect } from '../../src/store/dialect.ts';
import type { Reader } from '../../src/store/tx.ts';
import { Core } from '../support/core.ts';
import { planOf } from '../support/plans.ts';

let core: Core;
let connection: Database.Database;
beforeAll(async () => {
  core = await Core.open();
  connection = new Database(core.path, { readonly: true });
});
afterAll(async () => {
  connection.close();
  await core.close();
});

describe('however many messages there ever were', () => {
  it.each([undefined, 500])('those that were put aside are found by themselves, before %s', async (before) => {
    let sql = '';
    const reader = {
      dialect: sqliteDialect,
      fetch: async (query: Parameters<Reader['fetch']>[0]) => {
        const compiled = compileWith(sqliteDialect, query);
        const plan = connection.prepare(`explain query plan ${compiled.sql}`).all(compiled.parameters);
        sql = (plan as { detail: string }[]).map(({ detail }) => detail).join('; ');
        return [];
      },
    } as unknown as Reader;
    await parkedMessages(reader, { before, limit: 51 });
    expect(sql).toMatch(/INDEX inbox_failed/);
    expect(sql).not.toContain('TEMP B-TREE');
  });

  it('open questions, earlier words of a conversation and who asked are looked up', () => {
    expect(planOf(connection, openQuestions).join()).toContain('USING INDEX inbox_asked (session_key=?');
    expect(planOf(connection, saidBefore).join()).toContain('USING INDEX inbox_session (session_key=?');
    expect(planOf(connection, askerOfFlow).join()).toContain('followup_flow (flow_id=?');
  });
});
