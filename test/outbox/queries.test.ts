import Database from 'better-sqlite3';
import { afterEach, beforeEach, expect, it } from 'vitest';
import {
  chatHeads,
  freeChats,
  insertNewMessages,
  leaseMessages,
  listMessages,
  recordParts,
  sendingMessages,
  settleMessages,
  supersedeUpdates,
} from '../../src/outbox/queries.ts';
import type { HotQuery } from '../../src/store/dialect.ts';
import { planOf } from '../support/plans.ts';
import { final, Rig, route, START } from './rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(() => rig.end());

function plan(query: HotQuery<never, unknown>): string[] {
  const connection = new Database(rig.path, { readonly: true });
  try {
    return planOf(connection, query);
  } finally {
    connection.close();
  }
}

const all = [
  chatHeads,
  freeChats,
  insertNewMessages,
  leaseMessages,
  recordParts,
  sendingMessages,
  settleMessages,
  supersedeUpdates,
];
it.each(all.map((query) => [query.name, query as unknown as HotQuery<never, unknown>]))(
  '%s never walks through the outbox',
  (_name, query) => {
    const steps = plan(query);
    const scans = steps.filter(
      (step) =>
        /^SCAN (outbox|m|o|older|busy|past|head|behind|chat_hold|send_rate)\b/.test(step) && !/SCAN head$/.test(step),
    );
    expect(scans).toEqual([]);
  },
);

it.each(
  [leaseMessages, recordParts, settleMessages].map((query) => [
    query.name,
    query as unknown as HotQuery<never, unknown>,
  ]),
)('%s finds its messages by id', (_name, query) => {
  expect(plan(query).join('\n')).toContain('SEARCH outbox USING INTEGER PRIMARY KEY');
});

it('whether a chat has a sender, and whether updates of its task precede a result, is asked of small indexes', () => {
  expect(plan(leaseMessages as unknown as HotQuery<never, unknown>).join('\n')).toContain(
    'busy USING COVERING INDEX outbox_sender',
  );
  for (const query of [chatHeads, supersedeUpdates]) {
    expect(plan(query as unknown as HotQuery<never, unknown>).join('\n')).toContain(
      'SEARCH past USING INDEX outbox_task',
    );
  }
});

it('the heads are the oldest of each chat, however much waits behind them, in the order they may go', async () => {
  await rig.enqueue(...Array.from({ length: 300 }, (_, n) => final(`chat ${n % 3}`, `m${n}`)));
  await rig.enqueue({ route: { ...route('x'), account: 'other' }, kind: 'final', text: 'elsewhere' });
  await rig.store.transact('test', (tx) =>
    tx.exec(
      tx.dialect.build
        .updateTable('outbox')
        .set({ next_at: START + 5 })
        .where('text', '=', 'm0'),
    ),
  );
  const heads = await rig.store.all(chatHeads, { channel: 'telegram', account: 'default', now: START, limit: 10 });
  expect(heads.map((head) => [head.chat, head.ready_at])).toEqual([
    ['chat 1', START],
    ['chat 2', START],
    ['chat 0', START + 5],
  ]);
});

it('the database itself refuses a second sender in one chat', async () => {
  await rig.enqueue(final('1', 'a'), final('1', 'b'));
  const cheat = rig.store.transact('test', (tx) =>
    tx.exec(tx.dialect.build.updateTable('outbox').set({ status: 'sending', lease_until: 1 })),
  );
  await expect(cheat).rejects.toThrow(/UNIQUE/);
});

it('a late sender changes nothing', async () => {
  await rig.enqueue(final('1', 'a'));
  const { settle, recordPart } = rig.outbox.leases;
  const [message] = await rig.lease([(await rig.row('a')).id]);
  const late = { ...message!, fence: message!.fence - 1 };
  const end = {
    status: 'sent',
    nextAt: 0,
    error: null,
    maybeRepeat: false,
    safeRepeats: 0,
    partsSent: 1,
    platformIds: ['x'],
  } as const;
  rig.events.length = 0;
  expect(await rig.store.write(recordPart, [{ message: late, partsSent: 1, platformIds: [] }])).toEqual(['lost']);
  expect(await rig.store.write(settle, [{ ...end, message: late, hold: { unreachable: true } }])).toEqual([false]);
  expect([await rig.statuses(), rig.events]).toEqual([['sending'], []]);
  expect(await rig.store.write(settle, [{ ...end, message: message! }])).toEqual([true]);
  expect(await rig.store.write(settle, [{ ...end, message: message! }])).toEqual([false]);
});

it('messages are leased in order, one per chat', async () => {
  await rig.enqueue(final('1', 'a'), final('1', 'b'), final('2', 'c'));
  const ids = (await rig.rows()).map((row) => row.id);
  const leased = await rig.lease([...ids].reverse());
  expect(leased.map((message) => message?.text)).toEqual(['c', undefined, 'a']);
  expect(await rig.lease([ids[1]!])).toEqual([undefined]);
});

it('a chat that is held gives nothing out; an unreachable one does not even show', async () => {
  await rig.enqueue(final('paused', 'a'), final('gone', 'b'), final('open', 'c'));
  const hold = { channel: 'telegram', account: 'default', reason: null };
  await rig.store.transact('test', (tx) =>
    tx.exec(
      tx.dialect.build.insertInto('chat_hold').values([
        { ...hold, chat: 'paused', until: START + 9, unreachable_since: null },
        { ...hold, chat: 'gone', until: null, unreachable_since: START },
        { ...hold, chat: 'open', until: START, unreachable_since: null },
      ]),
    ),
  );
  const ids = (await rig.rows()).map((row) => row.id);
  const leased = await rig.lease(ids);
  expect(leased.map((message) => message?.text)).toEqual([undefined, undefined, 'c']);
  const heads = await rig.store.all(chatHeads, { channel: 'telegram', account: 'default', now: START, limit: 10 });
  expect(heads.map((head) => [head.chat, head.ready_at])).toEqual([['paused', START + 9]]);
});

it('a clock that was set back lengthens no pause, neither of a chat nor of a message', async () => {
  const hour = 3_600_000;
  await rig.enqueue(final('1', 'new'), final('2', 'again'), final('3', 'held'));
  const [, again, held] = await rig.rows();
  const { settle } = rig.outbox.leases;
  const taken = await rig.lease([again!.id, held!.id]);
  const until = START + 30_000;
  const end = {
    status: 'pending',
    nextAt: until,
    error: '429',
    maybeRepeat: false,
    safeRepeats: 0,
    partsSent: 0,
  } as const;
  const [first, second] = taken.map((message) => ({ ...end, message: message!, platformIds: [] }));
  await rig.store.write(settle, [first!, { ...second!, hold: { until } }]);
  const readyAt = async () => {
    const now = rig.clock.now();
    const heads = await rig.store.all(chatHeads, { channel: 'telegram', account: 'default', now, limit: 10 });
    return heads.map(({ chat, ready_at }) => [chat, ready_at - now]).sort();
  };
  expect(await readyAt()).toEqual([
    ['1', 0],
    ['2', 30_000],
    ['3', 30_000],
  ]);
  rig.clock.advance(-hour);
  expect(await readyAt()).toEqual([
    ['1', 0],
    ['2', 0],
    ['3', 0],
  ]);
  const ids = (await rig.rows()).map(({ id }) => id);
  const leased = await rig.lease(ids);
  expect(leased.map((message) => message?.text)).toEqual(['new', 'again', 'held']);
});

it('the list shows the newest first and can be narrowed and continued', async () => {
  await rig.enqueue(final('1', 'a', { sessionKey: 's' }), final('1', 'b'), {
    route: route('u', 'webchat'),
    kind: 'reply',
    text: 'c',
    sessionKey: 's',
  });
  const texts = async (filter: Omit<Parameters<typeof listMessages>[1], 'limit'>, limit = 10) =>
    (await listMessages(rig.store, { ...filter, limit })).map((row) => row.text);
  expect(await texts({})).toEqual(['c', 'b', 'a']);
  expect(await texts({ status: 'pending' })).toEqual(['b', 'a']);
  expect(await texts({ sessionKey: 's' })).toEqual(['c', 'a']);
  expect(await texts({ before: (await rig.row('c')).id }, 1)).toEqual(['b']);
});
