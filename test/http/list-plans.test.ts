import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { flowsOf } from '../../src/flows/queries.ts';
import { MESSAGE_STATES } from '../../src/http/routes/outbox.ts';
import { auditEntries } from '../../src/http/routes/queries.ts';
import { listMessages } from '../../src/outbox/queries.ts';
import { compileWith, sqliteDialect } from '../../src/store/dialect.ts';
import type { Reader } from '../../src/store/tx.ts';
import { selectTasks } from '../../src/tasks/read-queries.ts';
import { isFinal, TASK_STATES } from '../../src/tasks/states.ts';
import { Core } from '../support/core.ts';

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

/** How the database would answer what `read` asks. */
async function planOf(read: (reader: Reader) => Promise<unknown>): Promise<string[]> {
  const steps: string[] = [];
  const reader = {
    dialect: sqliteDialect,
    fetch: async (query: Parameters<Reader['fetch']>[0]) => {
      const { sql, parameters } = compileWith(sqliteDialect, query);
      const rows = connection.prepare(`explain query plan ${sql}`).all(parameters) as { detail: string }[];
      steps.push(...rows.map((row) => row.detail));
      return [];
    },
  } as unknown as Reader;
  await read(reader);
  return steps;
}

const SORTED = expect.not.arrayContaining([expect.stringMatching(/TEMP B-TREE FOR ORDER BY/)]);

describe('A66: a page of a list reads along an index, however many rows there are and whichever page it is', () => {
  it.each([undefined, 500_000])('without a filter, before %s', async (before) => {
    const page = before === undefined ? { limit: 51 } : { limit: 51, before };
    for (const read of [
      (reader: Reader) => selectTasks(reader, page),
      (reader: Reader) => flowsOf(reader, page),
      (reader: Reader) => listMessages(reader, page),
      (reader: Reader) => auditEntries(reader, before, 51),
    ]) {
      const steps = await planOf(read);
      expect(steps).toEqual(SORTED);
      // Newest first along the key, and a page has an end.
      expect(steps).toEqual([
        expect.stringMatching(before === undefined ? /^SCAN \w+$/ : /^SEARCH \w+ USING INTEGER PRIMARY KEY/),
      ]);
    }
  });

  it.each(TASK_STATES)('tasks that are %s', async (status) => {
    const steps = await planOf((reader) => selectTasks(reader, { status, limit: 51 }));
    expect(steps).toEqual(SORTED);
    // Most tasks have succeeded: those are found along the key itself.
    if (status === 'succeeded') expect(steps).toEqual(['SCAN task']);
    else expect(steps[0]).toMatch(/^SEARCH/);
  });

  it.each(TASK_STATES.filter((status) => !isFinal(status)))(
    'tasks of a conversation that are %s, however many of it are over',
    async (status) => {
      const steps = await planOf((reader) => selectTasks(reader, { status, sessionKey: 'k', limit: 51 }));
      expect(steps).toEqual(SORTED);
      expect(steps[0]).toMatch(/^SEARCH task USING INDEX task_live/);
    },
  );

  it.each(['active', 'waiting', 'blocked'])('flows that are %s', async (status) => {
    const steps = await planOf((reader) => flowsOf(reader, { status, limit: 51 }));
    expect(steps).toEqual([expect.stringMatching(/^SEARCH flow USING INDEX flow_live/)]);
  });

  it.each(MESSAGE_STATES.filter((state) => !['sent', 'superseded'].includes(state)))(
    'messages that are %s',
    async (status) => {
      const steps = await planOf((reader) => listMessages(reader, { status, limit: 51 }));
      expect(steps).toEqual(SORTED);
      expect(steps[0]).toMatch(/^SEARCH outbox/);
    },
  );

  it('tasks, flows and messages of a conversation, and tasks of a flow or an agent', async () => {
    const plans = [
      await planOf((reader) => selectTasks(reader, { sessionKey: 's', limit: 51 })),
      await planOf((reader) => selectTasks(reader, { flowId: 1, limit: 51 })),
      await planOf((reader) => selectTasks(reader, { agentId: 'a', limit: 51 })),
      await planOf((reader) => flowsOf(reader, { sessionKey: 's', limit: 51 })),
      await planOf((reader) => listMessages(reader, { sessionKey: 's', limit: 51 })),
    ];
    for (const steps of plans) expect(steps[0]).toMatch(/^SEARCH/);
  });
});
