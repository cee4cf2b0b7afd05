import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createOutbox } from '../../src/outbox/enqueue.ts';
import { compileWith, type HotQuery, sqliteDialect } from '../../src/store/dialect.ts';
import { Core, newTask, ROUTE, SESSION } from '../support/core.ts';
import { planOf } from '../support/plans.ts';

/** Partial indexes of what is under way: they hold few rows however long the tables grow, and may be walked from end to end. */
const LIVE = ['run_live', 'inbox_new', 'followup_queued', 'outbox_chat', 'outbox_undelivered'];

/** What single statements may do beyond that, and why it stays small. Whatever else grows with the work that was ever done. */
const ALLOWED: Readonly<Record<string, { steps: readonly string[]; why: string }>> = {
  'agent.offline': { steps: ['SCAN agent'], why: 'one row per agent' },
  'agent.drains': { steps: ['SCAN agent_drain'], why: 'one row per agent that a person drains' },
  'health.alert_states': { steps: ['SCAN agent'], why: 'one row per agent' },
  'graph.unsuccessful_tasks': { steps: ['USE TEMP B-TREE FOR ORDER BY'], why: 'sorts the tasks of one graph' },
  'run.grants': { steps: ['USE TEMP B-TREE FOR ORDER BY'], why: 'sorts what one agent holds' },
  'why.effects': { steps: ['USE TEMP B-TREE FOR ORDER BY'], why: 'sorts the effects that one task waits for' },
  'outbox.heads': {
    steps: ['SCAN oldest', 'SCAN head', 'SCAN head', 'USE TEMP B-TREE FOR ORDER BY'],
    why: 'the recursive expression; it sorts one row per chat that has waiting messages',
  },
  'outbox.late': {
    steps: ['USE TEMP B-TREE FOR ORDER BY'],
    why: 'sorts what has waited too long in the chats that are looked at',
  },
  'outbox.digest_members': { steps: ['USE TEMP B-TREE FOR ORDER BY'], why: 'sorts what one message lists' },
  'line.bands': {
    steps: ['SCAN waiting', 'SCAN 3 CONSTANT ROWS', 'SCAN waiting', 'SCAN level'],
    why: 'the recursive expression; one row per stream that has queued tasks',
  },
  'need.doomed': {
    steps: ['SCAN doomed', 'SCAN doomed', 'USE TEMP B-TREE FOR GROUP BY'],
    why: 'the recursive expression; one row per task that is skipped',
  },
  'need.skipped': {
    steps: ['SCAN skipped', 'SCAN skipped'],
    why: 'the recursive expression; one row per task that was skipped',
  },
  'notify.graph_counts': { steps: ['USE TEMP B-TREE FOR GROUP BY'], why: 'counts the tasks of one graph' },
  'retention.streams_of_tasks': {
    steps: ['SCAN slice', 'USE TEMP B-TREE FOR GROUP BY'],
    why: 'groups one slice of the tasks',
  },
  'retention.remove_stream': { steps: ['SCAN stream'], why: 'only where the statistics say that there are hardly any' },
  'gate.all': { steps: ['SCAN gate'], why: 'what people have limited or paused: few' },
  'gate.list': { steps: ['SCAN gate'], why: 'what people have limited or paused: few' },
  'slot.drop': { steps: ['SCAN dead'], why: 'slots of live runs, and the few that are about to be dropped' },
  'lane.running': { steps: ['USE TEMP B-TREE FOR GROUP BY'], why: 'groups the live runs' },
  'lane.due': { steps: ['SCAN some'], why: 'counts at most as many as it is told to' },
  'task.paused_at': {
    steps: ['USE TEMP B-TREE FOR GROUP BY'],
    why: 'groups what happened to the tasks that it is about',
  },
  'audit.queued': {
    steps: ['SCAN waiting', 'SCAN 3 CONSTANT ROWS', 'SCAN waiting', 'SCAN level'],
    why: 'the recursive expression; one row per queue and priority that has waiting tasks',
  },
  'http.said': {
    steps: ['USE TEMP B-TREE FOR ORDER BY', 'USE TEMP B-TREE FOR ORDER BY'],
    why: 'sorts what was written because of one message',
  },
  'http.undelivered': { steps: ['USE TEMP B-TREE FOR GROUP BY'], why: 'groups the messages under way' },
  'chat.after': {
    steps: ['USE TEMP B-TREE FOR ORDER BY'],
    why: 'sorts the messages of a person that nobody has acted on yet',
  },
  'chat.before': { steps: ['USE TEMP B-TREE FOR ORDER BY'], why: 'the same' },
};

const SOURCES = join(import.meta.dirname, '..', '..', 'src');

async function hotStatements(): Promise<HotQuery<never, unknown>[]> {
  const files = (await readdir(SOURCES, { recursive: true })).filter((file) => /(^|[/-])queries\.ts$/.test(file));
  const found: HotQuery<never, unknown>[] = [];
  for (const file of files.sort()) {
    const exports = (await import(pathToFileURL(join(SOURCES, file)).href)) as Record<string, unknown>;
    for (const value of Object.values(exports)) {
      if (typeof value === 'object' && value !== null && 'compile' in value && 'name' in value)
        found.push(value as HotQuery<never, unknown>);
    }
  }
  return found;
}
const statements = await hotStatements();

/** Thousands of rows where rows pile up, a few where work is under way. */
async function fill(core: Core): Promise<void> {
  const seed = (n: number) =>
    newTask({ sessionKey: n % 3 === 0 ? null : `${SESSION}${n % 50}`, source: 'chat', idempotencyKey: `${n}` });
  const seeds = Array.from({ length: 3_000 }, (_, n) => ({ task: seed(n), route: ROUTE, goal: 'g' }));
  for (let n = 0; n < seeds.length; n += 500) await core.store.write(core.verbs.start, seeds.slice(n, n + 500));
  const grants = await core.claimAll('a1', { max: 2_000 });
  await Promise.all(grants.slice(0, 1_950).map((grant) => core.tell(grant, { type: 'succeeded', summary: 'ok' })));
  await Promise.all(grants.slice(1_950).map((grant) => core.tell(grant, { type: 'started' })));
  const outbox = createOutbox({ instant: new Set(['webchat']), emit: () => undefined });
  await core.store.transact('fill', async (tx) => {
    const messages = Array.from({ length: 3_000 }, (_, n) => ({
      route: n < 40 ? { ...ROUTE, chat: `${n}` } : { ...ROUTE, channel: 'webchat' as const },
      sessionKey: `${SESSION}${n % 50}`,
      kind: 'final' as const,
      text: 'x',
      dedupeKey: `${n}`,
    }));
    await outbox.enqueue(tx, messages);
    const { build } = tx.dialect;
    for (let n = 0; n < 1_000; n += 1) {
      await tx.exec(
        build.insertInto('inbox').values({
          id: 100_000 + n,
          channel: n % 2 ? 'webchat' : 'telegram',
          account: 'default',
          identity: `${n}`,
          kind: 'text',
          route: '{}',
          sender_id: `${n % 50}`,
          sender_name: null,
          text: 't',
          addressed: 1,
          sent_at: null,
          received_at: n,
          status: n < 990 ? 'done' : 'new',
          attempts: 0,
          session_key: n < 990 ? `${SESSION}${n % 50}` : null,
          reason: null,
          done_at: null,
        }),
      );
      await tx.exec(
        build.insertInto('followup').values({
          id: 200_000 + n,
          inbox_id: 100_000 + n,
          session_key: `${SESSION}${n % 50}`,
          route: '{}',
          user_id: 'u',
          template: 't',
          args: '{}',
          status: n < 990 ? 'started' : 'queued',
          reason: null,
          flow_id: null,
          created_at: n,
          done_at: null,
        }),
      );
    }
  });
}

/** Steps that walk through or sort more than the parameter's own rows. */
function costly(steps: readonly string[]): string[] {
  return steps.filter((step) => {
    const live = LIVE.some((index) => new RegExp(`^SCAN \\w+ USING (COVERING )?INDEX ${index}$`).test(step));
    if (/^SCAN /.test(step)) return !live && !/^SCAN (jsonb_each|\(subquery-\d+\)|CONSTANT ROW|r\b)/.test(step);
    return /USE TEMP B-TREE/.test(step);
  });
}

it('all hot statements are found, each under a name of its own', () => {
  expect(statements.length).toBeGreaterThan(40);
  expect(new Set(statements.map((query) => query.name)).size).toBe(statements.length);
  expect(Object.keys(ALLOWED).filter((name) => !statements.some((query) => query.name === name))).toEqual([]);
});

describe.each(['a database with data', 'the same with the planner’s statistics'])('on %s', (kind) => {
  let core: Core;
  let connection: Database.Database;
  beforeAll(async () => {
    core = await Core.open();
    await fill(core);
    connection = new Database(core.path);
    if (kind !== 'a database with data') connection.exec('analyze');
    connection.close();
    connection = new Database(core.path, { readonly: true });
  });
  afterAll(async () => {
    connection?.close();
    await core.halt();
    await rm(core.folder, { recursive: true, force: true });
  });

  it('no statement is prepared anew at every call, as SQLite does for the value of a bare limit', () => {
    const bare = statements.filter((query) => /\blimit\s*\?/i.test(query.compile(sqliteDialect).sql));
    expect(bare.map(({ name }) => name)).toEqual([]);
    const built = compileWith(sqliteDialect, sqliteDialect.build.selectFrom('task').select('id').limit(5));
    expect(built.sql).toMatch(/limit cast\(\? as integer\)$/);
  });

  it.each(statements.map((query) => [query.name, query] as const))('%s reads no more than it needs', (name, query) => {
    const allowed = [...(ALLOWED[name]?.steps ?? [])];
    const bad = costly(planOf(connection, query)).filter((step) => {
      const place = allowed.indexOf(step);
      if (place >= 0) allowed.splice(place, 1);
      return place < 0;
    });
    expect(bad).toEqual([]);
  });
});

it('the check itself sees a scan and a sort', async () => {
  const core = await Core.open();
  const connection = new Database(core.path, { readonly: true });
  const steps = (sql: string) =>
    (connection.prepare(`explain query plan ${sql}`).all() as { detail: string }[]).map((row) => row.detail);
  expect(costly(steps('select * from task where label = 1'))).toHaveLength(1);
  expect(costly(steps('select * from task where flow_id = 1 order by label'))).toHaveLength(1);
  expect(costly(steps('select * from task where id = 1'))).toEqual([]);
  connection.close();
  await core.close();
});
