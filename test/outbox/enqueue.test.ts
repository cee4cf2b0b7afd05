import { afterEach, beforeEach, expect, it } from 'vitest';
import { final, Rig, route, START } from './rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(() => rig.end());

it('messages are stored as pending in the order given, with the route untouched', async () => {
  await rig.enqueue(
    final('1', 'a', { taskId: 5, flowId: 6, sessionKey: 's' }),
    final('1', 'b'),
    final('2', '"quoted" 汉字 \\ 😀'),
  );
  const rows = await rig.rows();
  expect(rows.map((row) => row.text)).toEqual(['a', 'b', '"quoted" 汉字 \\ 😀']);
  expect(rows[0]).toMatchObject({
    status: 'pending',
    task_id: 5,
    flow_id: 6,
    session_key: 's',
    next_at: START,
    created_at: START,
  });
  expect(JSON.parse(rows[0]!.route)).toEqual(route('1'));
  expect(rig.events).toEqual([
    {
      type: 'outbox.enqueued',
      chats: [
        { channel: 'telegram', account: 'default', chat: '1' },
        { channel: 'telegram', account: 'default', chat: '2' },
      ],
    },
  ]);
});

it('one dedupe key is one row, within a batch and across batches, and the first text stays', async () => {
  await rig.enqueue(
    final('1', 'first', { dedupeKey: 'k' }),
    final('1', 'second', { dedupeKey: 'k' }),
    final('1', 'other'),
  );
  rig.events.length = 0;
  await rig.enqueue(final('1', 'third', { dedupeKey: 'k' }));
  expect((await rig.rows()).map((row) => row.text)).toEqual(['first', 'other']);
  expect(rig.events).toEqual([]);
});

it('where the row is the receipt the message is stored as sent, and only new ones are told', async () => {
  const message = { route: route('u', 'webchat'), kind: 'final', text: 'hello', taskId: 9, dedupeKey: 'd' } as const;
  await rig.enqueue(message, message);
  expect(await rig.rows()).toMatchObject([{ status: 'sent', sent_at: START, task_id: 9 }]);
  expect(rig.events).toMatchObject([{ type: 'outbox.sent', taskId: 9, kind: 'final', chat: 'u', flowId: null }]);
});

it('a transaction that fails leaves no message and no event', async () => {
  const failing = rig.store.transact('test', async (tx) => {
    await rig.outbox.enqueue(tx, [final('1', 'never')]);
    throw new Error('no');
  });
  await expect(failing).rejects.toThrow('no');
  expect(await rig.rows()).toEqual([]);
  expect(rig.events).toEqual([]);
});

it('text that databases refuse is made storable', async () => {
  await rig.enqueue(final('1', 'a\uD83Db\u0000c'));
  expect((await rig.rows())[0]!.text).toBe('a\uFFFDbc');
});

it('a batch without dedupe keys is one insert', async () => {
  const statements: string[] = [];
  await rig.store.transact('test', async (tx) => {
    const counting: typeof tx = {
      now: tx.now,
      retentionMs: tx.retentionMs,
      dialect: tx.dialect,
      ids: (count) => tx.ids(count),
      afterCommit: (action) => tx.afterCommit(action),
      run: (query, params) => {
        statements.push(query.name);
        return tx.run(query, params);
      },
      all: (query, params) => {
        statements.push(query.name);
        return tx.all(query, params);
      },
      fetch: () => Promise.reject(new Error('a statement built on the spot')),
      exec: () => Promise.reject(new Error('a statement built on the spot')),
    };
    await rig.outbox.enqueue(counting, [final('1', 'a'), final('2', 'b'), final('3', 'c')]);
  });
  expect(statements).toEqual(['outbox.insert']);
  expect(await rig.rows()).toHaveLength(3);
});
