import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type GraphSubmission,
  graphSchema,
  type Submission,
  Submitter,
  submissionSchema,
} from '../../src/flows/submit.ts';
import { loadTemplates } from '../../src/flows/templates.ts';
import { parseWith } from '../../src/http/hot.ts';
import { touchSessions } from '../../src/sessions/sessions.ts';
import { Core, ROUTE, SESSION, START } from '../support/core.ts';
import { ERRANDS } from '../support/errands.ts';
import { fail, storedNeeds, succeed } from '../support/graphs.ts';

let core: Core;
let submitter: Submitter;
beforeEach(async () => {
  core = await Core.open();
  const folder = join(core.folder, 'templates');
  await mkdir(folder);
  for (const [name, text] of Object.entries(ERRANDS)) await writeFile(join(folder, name), text);
  const { store, clock, emit } = core;
  const templates = await loadTemplates(folder);
  submitter = new Submitter({ store, ids: store.ids, clock, emit, templates, timeZone: 'UTC', patienceMs: () => 0 });
  await store.transact('test.session', (tx) => touchSessions(tx, [{ sessionKey: SESSION, route: ROUTE, at: START }]));
});
afterEach(() => core.close());

const read = (body: object): Submission => parseWith(submissionSchema, { template: 'hello', ...body });
const one = async (body: object) => submitter.submit(read(body));
const all = async (...bodies: object[]) => submitter.submitAll(bodies.map(read));
const graph = async (tasks: object[], more: object = {}) =>
  submitter.submitGraph(
    parseWith(graphSchema, {
      tasks: tasks.map((task) => ({ template: 'hello', ...task })),
      ...more,
    }) as GraphSubmission,
  );
const rowId = (taskId: string) => core.store.ids.decode(taskId)!;
const idsOf = (answers: readonly { taskId: string }[]) => answers.map(({ taskId }) => rowId(taskId));
const rows = async (table: 'task' | 'flow') =>
  core.store.fetch(core.store.dialect.build.selectFrom(table).selectAll().orderBy('id'));
const nothingStored = async () =>
  expect([await rows('task'), await rows('flow'), await storedNeeds(core)]).toEqual([[], [], []]);

describe('a batch whose tasks name one another', () => {
  it('becomes one flow: what needs nothing is queued, the rest waits', async () => {
    const answers = await all(
      { label: 'fetch' },
      { needs: [0] },
      { needs: [0] },
      { needs: [1, 2], when: 'always' },
      {},
    );
    expect(answers.map(({ status }) => status)).toEqual(['queued', 'waiting', 'waiting', 'waiting', 'queued']);
    expect(new Set(answers.map(({ flowId }) => flowId)).size).toBe(1);
    const [a, b, c, d] = idsOf(answers) as [number, number, number, number];
    expect(await storedNeeds(core)).toEqual([
      [b, a, 'success', 0],
      [c, a, 'success', 0],
      [d, b, 'always', 0],
      [d, c, 'always', 0],
    ]);
    expect(await rows('flow')).toMatchObject([
      { owner_session_key: '', graph: 1, deadline_at: null, goal: 'fetch, hello', status: 'active' },
    ]);
  });

  it('may name later tasks, and belongs to its conversation', async () => {
    const answers = await all({ needs: [1], sessionKey: SESSION }, { sessionKey: SESSION });
    expect(answers.map(({ status }) => status)).toEqual(['waiting', 'queued']);
    expect(await rows('flow')).toMatchObject([{ owner_session_key: SESSION, route: JSON.stringify(ROUTE) }]);
  });

  it('without needs stays as many errands as it has tasks', async () => {
    const answers = await all({ sessionKey: SESSION, needs: [] }, { sessionKey: SESSION });
    expect(new Set(answers.map(({ flowId }) => flowId)).size).toBe(2);
    expect((await rows('flow')).map((flow) => (flow as { graph: number }).graph)).toEqual([0, 0]);
  });

  it('is given as an object where it is one flow without needs, with a deadline and a name', async () => {
    const answers = await graph([{}, {}], { deadline: '10m', label: 'Nightly' });
    expect(answers.map(({ status }) => status)).toEqual(['queued', 'queued']);
    expect(await rows('flow')).toMatchObject([{ graph: 1, deadline_at: START + 600_000, goal: 'Nightly' }]);
  });

  const CIRCLE = ': a task cannot need itself, not by way of others either';
  it.each<[string, object[], string, string]>([
    ['a self-reference', [{}, { needs: [1] }], '[1].needs[0]', `tasks[1].needs[0]: 1 → 1${CIRCLE}`],
    [
      'A63: a circle',
      [{}, {}, {}, { needs: [7] }, {}, {}, {}, { needs: [0, 3] }],
      '[3].needs[0]',
      `tasks[3].needs[0]: 3 → 7 → 3${CIRCLE}`,
    ],
    ['an index beyond its end', [{}, { needs: [2] }], '[1].needs[0]', 'there is no task 2 in this batch'],
    ['a need named twice', [{}, { needs: [0, 0] }], '[1].needs[1]', '0 is named twice'],
    ['an id that names nothing', [{ needs: ['!'] }, {}], '[0].needs[0]', 'there is no task "!"'],
    ['an id without a flow', [{ needs: ['k7q2'] }, {}], '[0].needs[0]', 'give flowId'],
    ['a flow that is none', [{ flowId: '!' }, {}], '[0].flowId', 'there is no flow "!"'],
    ['a flow that nobody has made', [{ flowId: 'k7q2' }, {}], '[0].flowId', 'there is no flow k7q2'],
    ['two owners', [{ sessionKey: SESSION }, { needs: [0] }], '[1].sessionKey', 'one conversation'],
    [
      'a conversation that nobody knows',
      [{ sessionKey: 'x' }, { needs: [0], sessionKey: 'x' }],
      '[0].sessionKey',
      'nobody has spoken',
    ],
    ['a negative index', [{}, { needs: [-1] }], '[1].needs[0]', 'needs'],
    ['a condition that is none', [{}, { needs: [0], when: 'never' }], '[1].when', 'when'],
    ['a bad argument', [{}, { needs: [0], args: { nam: 'x' } }], '[1].args.nam', 'nam'],
  ])('with %s is refused, the place is named, and nothing is stored', async (_name, bodies, field, text) => {
    // The schema numbers the items by itself where it judges them.
    const attempt = async () => {
      const parsed = bodies.map((body, index) => {
        try {
          return read(body);
        } catch (error) {
          (error as { field: string }).field = `[${index}].${(error as { field: string }).field}`;
          throw error;
        }
      });
      return submitter.submitAll(parsed);
    };
    await expect(attempt()).rejects.toMatchObject({
      code: 'invalid_request',
      field,
      message: expect.stringContaining(text),
    });
    await nothingStored();
  });

  it('given as an object names places as an object has them', async () => {
    await expect(graph([{}, { needs: [1] }])).rejects.toMatchObject({ field: 'tasks[1].needs[0]' });
    await expect(graph([{}, { template: 'nope' }])).rejects.toMatchObject({ field: 'tasks[1].template' });
    await nothingStored();
  });

  it('a task that is submitted alone has no indexes', async () => {
    await expect(one({ needs: [0] })).rejects.toMatchObject({
      field: 'needs[0]',
      message: expect.stringContaining('0 → 0'),
    });
    await expect(one({ needs: [1] })).rejects.toMatchObject({ field: 'needs[0]' });
    await nothingStored();
  });
});

describe('sent again', () => {
  const keyed = [{ idempotencyKey: 'a' }, { idempotencyKey: 'b', needs: [0] }];

  it('a whole graph answers the same tasks and makes no flow', async () => {
    const first = await all(...keyed);
    const again = await all(...keyed);
    expect(again).toEqual(first.map((answer) => ({ ...answer, idempotent: true })));
    expect(await rows('flow')).toHaveLength(1);
    await succeed(core, rowId(first[0]!.taskId));
    expect((await all(...keyed)).map(({ status }) => status)).toEqual(['succeeded', 'queued']);
  });

  it.each<[string, object[], string]>([
    ['with a task more', [...keyed, { needs: [1] }], '[0].idempotencyKey'],
    [
      'with other needs',
      [keyed[0]!, { idempotencyKey: 'b' }, { idempotencyKey: 'a', needs: [1] }],
      '[1].idempotencyKey',
    ],
    ['with one key twice', [{ idempotencyKey: 'x' }, { idempotencyKey: 'x', needs: [0] }], '[1].idempotencyKey'],
  ])('%s is refused', async (_name, bodies, field) => {
    await all(...keyed);
    const before = [await rows('task'), await rows('flow'), await storedNeeds(core)];
    await expect(all(...bodies)).rejects.toMatchObject({ code: 'idempotency_conflict', field });
    expect([await rows('task'), await rows('flow'), await storedNeeds(core)]).toEqual(before);
  });

  it('with other arguments under a key is refused as ever', async () => {
    await all(...keyed);
    await expect(all({ ...keyed[0], args: { name: 'other' } }, keyed[1]!)).rejects.toMatchObject({
      code: 'idempotency_conflict',
      field: '[0].idempotencyKey',
    });
  });
});

describe('a task for a flow that exists', () => {
  const begin = async () => {
    const [a, b] = await all({ sessionKey: SESSION }, { sessionKey: SESSION, needs: [0] });
    return { a: a!.taskId, b: b!.taskId, flowId: a!.flowId! };
  };

  it('needs tasks of it by id, those that have succeeded are met, and the flow’s owner is its own', async () => {
    const { a, b, flowId } = await begin();
    await succeed(core, rowId(a));
    const waiting = await one({ flowId, needs: [a, b] });
    expect(waiting).toMatchObject({ status: 'waiting', flowId });
    const free = await one({ flowId, needs: [a] });
    expect(free).toMatchObject({ status: 'queued', flowId });
    expect(await core.task(rowId(free.taskId))).toMatchObject({ session_key: SESSION, graph: 1 });
    expect((await storedNeeds(core)).slice(1)).toEqual([
      [rowId(waiting.taskId), rowId(a), 'success', 1],
      [rowId(waiting.taskId), rowId(b), 'success', 0],
      [rowId(free.taskId), rowId(a), 'success', 1],
    ]);
    await succeed(core, rowId(b));
    expect((await core.task(rowId(waiting.taskId))).status).toBe('queued');
  });

  it('makes an errand of a chat wait for nothing, but be waited for', async () => {
    const id = await core.ask();
    const flowId = core.store.ids.encode((await core.flowOf(id)).id);
    const child = await one({ flowId, needs: [core.store.ids.encode(id)] });
    expect(child.status).toBe('waiting');
    await core.tell(await core.run(), { type: 'succeeded', summary: 'ok' });
    expect((await core.task(rowId(child.taskId))).status).toBe('queued');
    expect(await core.flowOf(id)).toMatchObject({ status: 'active', graph: 0 });
  });

  it('without needs is one more of its tasks', async () => {
    const { flowId } = await begin();
    expect(await one({ flowId })).toMatchObject({ status: 'queued', flowId });
    expect(await rows('flow')).toHaveLength(1);
  });

  it('may be a batch of its own, which closes no circle later', async () => {
    const { b, flowId } = await begin();
    const more = await all({ flowId, needs: [b] }, { flowId, needs: [0, b] });
    expect(more.map(({ status }) => status)).toEqual(['waiting', 'waiting']);
    await expect(all({ flowId, needs: [1] }, { flowId, needs: [b, 0] })).rejects.toMatchObject({
      field: '[0].needs[0]',
    });
    await expect(all({ flowId }, { needs: [0] })).rejects.toMatchObject({
      field: '[1].needs[0]',
      message: expect.stringContaining('another flow'),
    });
  });

  it('may be sent again', async () => {
    const { a, b, flowId } = await begin();
    const body = { flowId, needs: [a], idempotencyKey: 'child' };
    const first = await one(body);
    expect(await one(body)).toEqual({ ...first, idempotent: true });
    await expect(one({ ...body, needs: [b] })).rejects.toMatchObject({ code: 'idempotency_conflict' });
  });

  it('that has failed needs are refused, unless their end is enough', async () => {
    const { a, b, flowId } = await begin();
    await one({ flowId });
    await fail(core, rowId(a));
    await expect(one({ flowId, needs: [a] })).rejects.toMatchObject({
      code: 'conflict',
      field: 'needs[0]',
      message: expect.stringContaining(`task ${a} is failed`),
    });
    await expect(one({ flowId, needs: [b] })).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining('is cancelled'),
    });
    expect(await one({ flowId, needs: [a, b], when: 'always' })).toMatchObject({ status: 'queued' });
  });

  it('is refused where the flow is over, being cancelled, another’s, or its need is another flow’s', async () => {
    const { a, b, flowId } = await begin();
    const other = await begin();
    await expect(one({ flowId, needs: [other.a] })).rejects.toMatchObject({
      code: 'invalid_request',
      field: 'needs[0]',
    });
    await expect(one({ flowId, sessionKey: 'agent:main:telegram:direct:8' })).rejects.toMatchObject({
      field: 'sessionKey',
    });
    await expect(graph([{ flowId }], { deadline: '1m' })).rejects.toMatchObject({ field: 'deadline' });
    const build = core.store.dialect.build;
    await core.store.transact('test.intent', (tx) =>
      tx.exec(build.updateTable('flow').set({ cancel_requested_at: START }).where('id', '=', rowId(other.flowId))),
    );
    await expect(one({ flowId: other.flowId })).rejects.toMatchObject({
      code: 'conflict',
      field: 'flowId',
      message: expect.stringContaining('being cancelled'),
    });
    await succeed(core, rowId(a));
    await succeed(core, rowId(b));
    await expect(one({ flowId })).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining('is over (finished)'),
    });
  });
});

it('A63: a chain of 2,000 is submitted in a second and more, and runs to its end in order', async () => {
  const link = (index: number, first: object) => (index === 0 ? first : { needs: [index - 1] });
  const first = await all(...Array.from({ length: 1_000 }, (_, index) => link(index, {})));
  const { taskId, flowId } = first.at(-1)!;
  const second = await all(
    ...Array.from({ length: 1_000 }, (_, index) => ({ flowId, ...link(index, { needs: [taskId] }) })),
  );
  expect(second.every((answer) => answer.flowId === flowId && answer.status === 'waiting')).toBe(true);
  await core.cancel(rowId(first[0]!.taskId));
  const left = (await rows('task')).filter((task) => (task as { status: string }).status !== 'cancelled');
  expect(left).toEqual([]);
  expect(await rows('flow')).toMatchObject([{ status: 'cancelled' }]);
}, 30_000);
