import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Route } from '../../src/channels/channel.ts';
import { startFlow } from '../../src/flows/start.ts';
import { touchSessions } from '../../src/sessions/sessions.ts';
import { Core, newTask, ROUTE, SESSION, START } from '../support/core.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const seed = (more: Parameters<typeof newTask>[0] = {}, route: Route | null = ROUTE) => ({
  task: newTask({ sessionKey: SESSION, source: 'chat', ...more }),
  route,
  goal: 'report room 302',
});
const start = (...seeds: ReturnType<typeof seed>[]) => core.store.write(core.verbs.start, seeds);
const flows = () => core.store.fetch(core.store.dialect.build.selectFrom('flow').selectAll().orderBy('id'));
const touch = (route: Route) =>
  core.store.transact('test.touch', (tx) => touchSessions(tx, [{ sessionKey: SESSION, route, at: START }]));

describe('a task of a conversation', () => {
  it('gets a flow of its own, owned by the conversation, in the same transaction', async () => {
    const [answer] = await start(seed({ notifyPolicy: 'state_changes' }));
    const flow = await core.flowOf((answer as { id: number }).id);
    expect(flow).toMatchObject({
      id: (answer as { flowId: number }).flowId,
      owner_session_key: SESSION,
      status: 'active',
      revision: 1,
      goal: 'report room 302',
      notify_policy: 'state_changes',
      created_at: START,
      ended_at: null,
    });
    expect(JSON.parse(flow.route!)).toEqual(ROUTE);
    expect(core.store.stats().transactions).toBe(1);
  });

  it('keeps the route of its own message, whatever is said afterwards', async () => {
    const topic: Route = { ...ROUTE, chat: '-100', chatKind: 'group', thread: '5', messageId: '77' };
    await touch({ ...ROUTE, messageId: '1' });
    const [answer] = await start(seed({}, topic));
    await touch({ ...ROUTE, messageId: '2' });
    expect(JSON.parse((await core.flowOf((answer as { id: number }).id)).route!)).toEqual(topic);
  });

  it('made without a message, reports to the conversation’s stored destination of that moment', async () => {
    await touch({ ...ROUTE, messageId: '1' });
    const [answer] = await start(seed({ source: 'api' }, null));
    await touch({ ...ROUTE, chat: '8' });
    expect(JSON.parse((await core.flowOf((answer as { id: number }).id)).route!)).toMatchObject({ chat: '7' });
  });

  it('of which nobody has ever spoken is refused, and its neighbours are not', async () => {
    const answers = await start(
      seed({}),
      seed({ sessionKey: 'agent:main:webchat:direct:nobody' }, null),
      seed({ sessionKey: null }, null),
      seed({ label: 'x' }),
    );
    expect(answers.map(({ result }) => result)).toEqual(['created', 'no_session', 'created', 'created']);
    expect(await flows()).toHaveLength(2);
    expect(new Set(answers.flatMap((answer) => ('id' in answer ? [answer.id] : []))).size).toBe(3);
  });
});

it('a task of nobody’s has no flow; a task that names its flow gets no second one', async () => {
  const [first, owned] = await start(seed({ sessionKey: null }), seed());
  expect(first).toMatchObject({ result: 'created', flowId: null });
  const flowId = (owned as { flowId: number }).flowId;
  const [child] = await start(seed({ flowId, source: 'subagent' }, null));
  expect(child).toMatchObject({ result: 'created', flowId });
  expect(await flows()).toHaveLength(1);
});

it('a repeated key answers the first task with its flow and makes neither anew', async () => {
  const key = { idempotencyKey: 'K', args: { a: '1' } };
  const [first, twin, other] = await start(seed(key), seed(key), seed({ ...key, args: { a: '2' } }));
  const { id, flowId } = first as { id: number; flowId: number };
  expect([twin, other]).toMatchObject([
    { result: 'existing', id, flowId },
    { result: 'conflict', id },
  ]);
  expect(await start(seed(key))).toMatchObject([{ result: 'existing', id, flowId }]);
  expect(await flows()).toHaveLength(1);
});

it('in a mixed batch every task has its own flow, in the order of the seeds', async () => {
  const seeds = Array.from({ length: 12 }, (_, n) => ({
    ...seed({ sessionKey: n % 3 === 0 ? null : SESSION, idempotencyKey: n % 4 === 0 ? 'same' : null }),
    goal: `goal ${n}`,
  }));
  const answers = await start(...seeds);
  for (const [n, answer] of answers.entries()) {
    if (answer.result !== 'created') continue;
    if (seeds[n]!.task.sessionKey === null) expect(answer.flowId).toBeNull();
    else expect((await core.flowOf(answer.id)).goal).toBe(`goal ${n}`);
  }
  expect(answers.map(({ result }) => result)).toEqual(
    seeds.map(({ task }, n) =>
      task.idempotencyKey !== null &&
      seeds.findIndex(
        ({ task: earlier }) => earlier.idempotencyKey !== null && earlier.sessionKey === task.sessionKey,
      ) < n
        ? 'existing'
        : 'created',
    ),
  );
});

it('what fails with the transaction leaves neither flow nor task', async () => {
  const failed = core.store.transact('test.fail', async (tx) => {
    await startFlow(tx, seed(), core.emit);
    throw new Error('no');
  });
  await expect(failed).rejects.toThrow('no');
  expect([await flows(), core.events]).toEqual([[], []]);
});
