import fc from 'fast-check';
import { sql } from 'kysely';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { FLOW_STATES } from '../../src/flows/follow.ts';
import { taskEvents } from '../../src/tasks/read.ts';
import { ERROR_CLASSES, RUN_OUTCOMES } from '../../src/tasks/run-words.ts';
import { DELIVERY_STATES, NOTIFY_POLICIES, TASK_SOURCES, TASK_STATES } from '../../src/tasks/states.ts';
import { labelSuffix, queueName } from '../../src/tasks/streams.ts';
import { Core, newTask, SESSION, START } from '../support/core.ts';
import { MESSAGE_WORDS } from './states-document.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const keyed = (args: Record<string, string>, more: Parameters<typeof newTask>[0] = {}) =>
  newTask({ idempotencyKey: 'K', args, ...more });
const countTasks = async () =>
  (await core.store.fetch(core.store.dialect.build.selectFrom('task').select('id'))).length;

it('a new task waits in its queue with what its source implies', async () => {
  const id = await core.create({ args: { room: '302', n: 3, yes: true }, label: 'L' });
  expect(await core.task(id)).toMatchObject({
    status: 'queued',
    priority: 1,
    run_at: START,
    args: '{"room":"302","n":3,"yes":true}',
    label: 'L',
    scope_kind: 'system',
    notify_policy: 'done_only',
    delivery_status: 'not_applicable',
    generation: 1,
    attempt: 0,
    max_attempts: 3,
    created_at: START,
    ended_at: null,
  });
  expect(await taskEvents(core.store, core.store.ids, id)).toEqual([{ type: 'created', at: START, data: null }]);
  expect(core.events).toMatchObject([{ type: 'task.queued', id, priority: 1, runAt: START }]);
});

it('cron is silent unless told otherwise; a conversation that is told nothing has nothing to deliver', async () => {
  const policies = async (more: Parameters<typeof newTask>[0]) => {
    const { notify_policy, delivery_status, scope_kind } = await core.task(
      await core.create({ sessionKey: SESSION, ...more }),
    );
    return [notify_policy, delivery_status, scope_kind];
  };
  expect(await policies({ source: 'cron' })).toEqual(['silent', 'not_applicable', 'session']);
  expect(await policies({ source: 'cron', notifyPolicy: 'done_only' })).toEqual(['done_only', 'pending', 'session']);
  expect(await policies({ source: 'chat' })).toEqual(['done_only', 'pending', 'session']);
  expect(await policies({ source: 'chat', notifyPolicy: 'silent' })).toEqual(['silent', 'not_applicable', 'session']);
});

it('A20: the same key with the same payload answers the first task, whatever became of it; another payload is a conflict', async () => {
  const [first] = await core.createAll([keyed({ cmd: 'a' })]);
  expect(first).toMatchObject({ result: 'created', status: 'queued' });
  const id = first!.id;
  expect(await core.createAll([keyed({ cmd: 'a' })])).toEqual([
    { result: 'existing', id, status: 'queued', flowId: null },
  ]);
  expect(await core.createAll([keyed({ cmd: 'b' })])).toEqual([{ result: 'conflict', id }]);
  await core.tell(await core.claim(), { type: 'succeeded', summary: 'ok' });
  expect(await core.createAll([keyed({ cmd: 'a' }), keyed({ cmd: 'b' })])).toEqual([
    { result: 'existing', id, status: 'succeeded', flowId: null },
    { result: 'conflict', id },
  ]);
  expect(await countTasks()).toBe(1);
});

it('A20: a payload is its content, not its spelling', async () => {
  const [first] = await core.createAll([newTask({ idempotencyKey: 'K', args: { a: '1', b: '2', c: 'x y' } })]);
  const args = JSON.parse('{ "c" : "x y",\n "b":"2", "a":"1" }') as Record<string, string>;
  expect(await core.createAll([keyed(args)])).toMatchObject([{ result: 'existing', id: first!.id }]);
  expect(await core.createAll([keyed({ a: '1', b: '2', c: 'x  y' })])).toMatchObject([{ result: 'conflict' }]);
  // A number is not its text.
  expect(await core.createAll([newTask({ idempotencyKey: 'K', args: { a: 1, b: '2', c: 'x y' } })])).toMatchObject([
    { result: 'conflict' },
  ]);
});

it('A20: a key belongs to its template and owner', async () => {
  const answers = await core.createAll([
    keyed({}),
    keyed({}, { template: 'other' }),
    keyed({}, { sessionKey: 'one' }),
    keyed({}, { sessionKey: 'two' }),
    newTask({}),
    newTask({}),
  ]);
  expect(answers.map(({ result }) => result)).toEqual(Array.from({ length: 6 }, () => 'created'));
  expect(await countTasks()).toBe(6);
});

it('parts of a key cannot be shifted between template, owner and key', async () => {
  const answers = await core.createAll([
    newTask({ template: 'a', sessionKey: 'b', idempotencyKey: 'c' }),
    newTask({ template: 'a', sessionKey: 'b","c', idempotencyKey: '' }),
    newTask({ template: 'a","b', sessionKey: null, idempotencyKey: 'c' }),
    newTask({ template: 'a', sessionKey: null, idempotencyKey: 'b","c' }),
  ]);
  expect(answers.map(({ result }) => result)).toEqual(Array.from({ length: 4 }, () => 'created'));
});

it('A20: repeats inside one batch and between callers of one turn make one task', async () => {
  const inBatch = await core.createAll([
    keyed({ cmd: 'a' }),
    keyed({ cmd: 'a' }),
    keyed({ cmd: 'b' }),
    keyed({ cmd: 'a' }),
  ]);
  expect(inBatch.map(({ result }) => result)).toEqual(['created', 'existing', 'conflict', 'existing']);
  expect(new Set(inBatch.map(({ id }) => id)).size).toBe(1);
  const callers = await Promise.all(
    Array.from({ length: 20 }, () => core.createAll([keyed({}, { idempotencyKey: 'L' })])),
  );
  expect(callers.flat().filter(({ result }) => result === 'created')).toHaveLength(1);
  expect(await countTasks()).toBe(2);
});

it('any mix of keys and payloads behaves like a map from key to first payload', async () => {
  const step = fc.array(fc.record({ key: fc.constantFrom('a', 'b', 'c', null), value: fc.constantFrom('1', '2') }), {
    minLength: 1,
    maxLength: 6,
  });
  let round = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 4 }), async (batches) => {
      round += 1;
      const model = new Map<string, { id: number; value: string }>();
      for (const batch of batches) {
        const answers = await core.createAll(
          batch.map(({ key, value }) =>
            newTask({ idempotencyKey: key === null ? null : `${round}${key}`, args: { value } }),
          ),
        );
        for (const [index, { key, value }] of batch.entries()) {
          const known = key === null ? undefined : model.get(key);
          const answer = answers[index]!;
          expect(answer.result).toBe(known === undefined ? 'created' : known.value === value ? 'existing' : 'conflict');
          if (known) expect(answer.id).toBe(known.id);
          else if (key !== null) model.set(key, { id: answer.id, value });
        }
      }
    }),
    { numRuns: 40 },
  );
});

it('what decides who may take a task is in the name of its queue', () => {
  const at = (more: Parameters<typeof newTask>[0]) => queueName(newTask(more));
  expect(at({})).toBe('default/shell');
  expect(at({ pool: 'hotel', runtime: 'http' })).toBe('hotel/http');
  expect(at({ agent: 'printer-pc', pool: 'hotel' })).toBe('@printer-pc/shell');
  expect(at({ labels: { floor: '3', city: 'sz' } })).toBe('default/shell?city=sz&floor=3');
  expect([labelSuffix(null), labelSuffix({})]).toEqual(['', '']);
});

it('the words of the code are the words that the database accepts, and no others', async () => {
  const id = await core.ask();
  await core.run();
  const flow = await core.flowOf(id);
  const columns: [table: string, column: string, id: number, words: readonly string[], nullable: boolean][] = [
    ['task', 'source', id, TASK_SOURCES, false],
    ['task', 'notify_policy', id, NOTIFY_POLICIES, false],
    ['task', 'delivery_status', id, DELIVERY_STATES, false],
    ['task', 'error_class', id, ERROR_CLASSES, true],
    ['run', 'outcome', (await core.runs(id))[0]!.id, RUN_OUTCOMES, true],
    ['flow', 'status', flow.id, FLOW_STATES, false],
    ['flow', 'notify_policy', flow.id, NOTIFY_POLICIES, false],
  ];
  const set = (table: string, column: string, row: number, word: string | null) =>
    core.store.transact('test.word', (tx) =>
      tx.exec(sql`update ${sql.table(table)} set ${sql.ref(column)} = ${word} where id = ${row}`),
    );
  for (const [table, column, row, words, nullable] of columns) {
    for (const word of words) expect(await set(table, column, row, word), `${table}.${column} ${word}`).toBe(1);
    const others = ['', words[0]!.toUpperCase(), `${words[0]} `, 'nonsense', ...(nullable ? [] : [null])];
    for (const word of others)
      await expect(set(table, column, row, word), `${table}.${column} ${word}`).rejects.toThrow(/constraint failed/);
  }
});

it('the words of a task’s and of a message’s state are those of the schema', async () => {
  const rows = await core.store.fetch(
    sql<{ name: string; sql: string }>`select name, sql from sqlite_master where name in ('task', 'outbox')`,
  );
  const wordsOf = (table: string, column: string) => {
    const definition = rows.find(({ name }) => name === table)!.sql;
    const check = new RegExp(`^\\s*${column} text not null check \\((.*)\\),?$`, 'm').exec(definition)![1]!;
    return [...check.matchAll(/'([a-z_]+)'/g)].map((match) => match[1]!);
  };
  expect(wordsOf('task', 'status')).toEqual([...TASK_STATES]);
  expect(wordsOf('outbox', 'status')).toEqual(Object.keys(MESSAGE_WORDS));
});

it('a task that is held has a run, a task that has ended has an end: the database insists', async () => {
  const id = await core.create();
  const set = (changes: object) =>
    core.store.transact('test.set', (tx) =>
      tx.exec(tx.dialect.build.updateTable('task').set(changes).where('id', '=', id)),
    );
  for (const changes of [
    { status: 'leased' },
    { status: 'running' },
    { run_id: 5 },
    { status: 'succeeded' },
    { ended_at: 5 },
    { status: 'sleeping' },
    { priority: 3 },
  ]) {
    await expect(set(changes), JSON.stringify(changes)).rejects.toThrow(/CHECK constraint failed/);
  }
});
