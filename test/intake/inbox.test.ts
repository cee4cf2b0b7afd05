import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { IncomingMessage, Route } from '../../src/channels/channel.ts';
import { manualClock } from '../../src/clock.ts';
import { type ChannelPortOptions, createChannelPort } from '../../src/intake/inbox.ts';
import { createOutbox } from '../../src/outbox/enqueue.ts';
import type { OutboxEvent } from '../../src/outbox/message.ts';
import { openSqlite } from '../../src/store/sqlite.ts';
import type { Store } from '../../src/store/store.ts';

const route: Route = {
  channel: 'telegram',
  account: 'default',
  chat: '-100',
  chatKind: 'group',
  thread: '4',
  messageId: '9',
};
const message = (identity: string, more: Partial<IncomingMessage> = {}): IncomingMessage => ({
  identity,
  kind: 'text',
  route,
  sender: { id: '42', name: '张三' },
  text: `text of ${identity}`,
  addressed: true,
  sentAt: 1_700_000_000_000,
  ...more,
});

const clock = manualClock(0);
let folder: string;
let store: Store;
const woken: string[] = [];
beforeEach(async () => {
  clock.set(1_800_000_000_000);
  folder = await mkdtemp(join(tmpdir(), 'errand-inbox-'));
  store = openSqlite({ path: join(folder, 'errand.db'), clock });
  woken.length = 0;
});
afterEach(async () => {
  await store.close();
  await rm(folder, { recursive: true, force: true });
});

const port = (more: Partial<ChannelPortOptions> = {}) =>
  createChannelPort({
    store,
    channel: 'telegram',
    account: 'default',
    onStored: () => void woken.push('now'),
    ...more,
  });
const rows = () => store.fetch(store.dialect.build.selectFrom('inbox').selectAll().orderBy('id'));

it('messages become rows in their order, with everything the platform told', async () => {
  expect(
    await port().accept([
      message('a'),
      message('b', { kind: 'button', addressed: false, sender: {}, sentAt: undefined }),
    ]),
  ).toEqual(['stored', 'stored']);
  const [a, b] = await rows();
  expect(a).toMatchObject({
    channel: 'telegram',
    account: 'default',
    identity: 'a',
    kind: 'text',
    sender_id: '42',
    sender_name: '张三',
    text: 'text of a',
    addressed: 1,
    sent_at: 1_700_000_000_000,
    received_at: 1_800_000_000_000,
    status: 'new',
  });
  expect(JSON.parse(a!.route)).toEqual(route);
  expect(b).toMatchObject({ kind: 'button', addressed: 0, sender_id: null, sender_name: null, sent_at: null });
  expect(woken).toHaveLength(1);
});

it('an identity is stored once: in one batch, in a later one and in two at the same time', async () => {
  const here = port();
  expect(await here.accept([message('a'), message('a', { text: 'changed' }), message('b')])).toEqual([
    'stored',
    'duplicate',
    'stored',
  ]);
  expect(await here.accept([message('b'), message('c')])).toEqual(['duplicate', 'stored']);
  const both = await Promise.all([
    here.accept([message('d'), message('e')]),
    here.accept([message('e'), message('d')]),
  ]);
  expect(both).toEqual([
    ['stored', 'stored'],
    ['duplicate', 'duplicate'],
  ]);
  const apart = await Promise.all([port().accept([message('f')]), port().accept([message('f')])]);
  expect(apart.flat().sort()).toEqual(['duplicate', 'stored']);
  expect((await rows()).map((row) => row.identity)).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
  expect((await rows())[0]!.text).toBe('text of a');
});

it('the same identity on another account or channel is another message', async () => {
  await port().accept([message('a')]);
  expect(await port({ account: 'second' }).accept([message('a')])).toEqual(['stored']);
  expect(await port({ channel: 'wecom' }).accept([message('a')])).toEqual(['stored']);
});

it('a duplicate wakes nobody', async () => {
  await port().accept([message('a')]);
  await port().accept([message('a')]);
  expect(woken).toHaveLength(1);
});

it('when the store cannot write, neither messages nor offset are stored, nobody is woken, and the next try works', async () => {
  let failures = 1;
  store.onBeforeCommit(async () => {
    failures -= 1;
    if (failures >= 0) throw new Error('no space');
  });
  const here = port();
  await expect(here.accept([message('a')], { key: 'offset', value: 7 })).rejects.toThrow('no space');
  expect([await rows(), await here.state.get('offset'), woken.length]).toEqual([[], undefined, 0]);
  expect(await here.accept([message('a')], { key: 'offset', value: 7 })).toEqual(['stored']);
  expect([(await rows()).length, await here.state.get('offset'), woken.length]).toEqual([1, 7, 1]);
});

it('one bad batch fails alone; others of the same moment are stored', async () => {
  const here = port();
  const bad = message('bad', { kind: 'nonsense' as 'text' });
  const [first, second] = await Promise.allSettled([
    here.accept([bad], { key: 'k', value: 1 }),
    here.accept([message('good')]),
  ]);
  expect(first.status).toBe('rejected');
  expect(second).toMatchObject({ value: ['stored'] });
  expect([(await rows()).map((row) => row.identity), await here.state.get('k')]).toEqual([['good'], undefined]);
});

it('an offset is kept when every message is a duplicate, or there is none', async () => {
  const here = port();
  await here.accept([message('a')], { key: 'offset', value: 1 });
  await here.accept([message('a')], { key: 'offset', value: 2 });
  expect(await here.state.get('offset')).toBe(2);
  expect(await here.accept([], { key: 'offset', value: 3 })).toEqual([]);
  expect(await here.state.get('offset')).toBe(3);
});

it('of two offsets at the same time the later call wins', async () => {
  const here = port();
  await Promise.all([
    here.accept([message('a')], { key: 'offset', value: 1 }),
    here.accept([message('b')], { key: 'offset', value: 2 }),
  ]);
  expect(await here.state.get('offset')).toBe(2);
});

it('text that no database takes is made storable', async () => {
  await port().accept([
    message('x\uD800', {
      text: 'a\uD83Db\u0000c 😀',
      sender: { id: '1', name: '\uDE00' },
      route: { ...route, chat: 'c\uD800' },
    }),
  ]);
  const [row] = await rows();
  expect(row).toMatchObject({ identity: 'x\uFFFD', text: 'a\uFFFDbc 😀', sender_name: '\uFFFD' });
  expect(JSON.parse(row!.route).chat).toBe('c\uFFFD');
});

it('state is JSON per channel account and survives a restart', async () => {
  const value = { list: [1, 'zwei', null], 汉: true };
  await port().state.set('k', value);
  await port({ account: 'other' }).state.set('k', 2);
  await store.close();
  store = openSqlite({ path: join(folder, 'errand.db'), clock });
  expect(await port().state.get('k')).toEqual(value);
  expect(await port({ account: 'other' }).state.get('k')).toBe(2);
  expect(await port({ channel: 'wecom' }).state.get('k')).toBeUndefined();
});

it('a lease has one holder, is renewed by it, and changes hands when it is over', async () => {
  const [one, two] = [port({ holder: 'one' }), port({ holder: 'two' })];
  const taken = await Promise.all([one.lease('poll', 1_000), two.lease('poll', 1_000)]);
  expect(taken).toEqual([true, false]);
  clock.advance(999);
  expect(await one.lease('poll', 1_000)).toBe(true);
  clock.advance(999);
  expect(await two.lease('poll', 1_000)).toBe(false);
  clock.advance(1);
  expect(await two.lease('poll', 1_000)).toBe(true);
  expect(await one.lease('poll', 1_000)).toBe(false);
  expect(await one.lease('other', 1_000)).toBe(true);
  expect(await port({ holder: 'one', account: 'b' }).lease('poll', 1_000)).toBe(true);
  const leases = await store.fetch(store.dialect.build.selectFrom('named_lease').selectAll().orderBy('name'));
  expect(leases.map(({ name, holder, epoch }) => [name, holder, epoch])).toEqual([
    ['telegram/b/poll', 'one', 1],
    ['telegram/default/other', 'one', 1],
    ['telegram/default/poll', 'two', 2],
  ]);
});

it('two ports of one process share its leases', async () => {
  expect(await port().lease('poll', 1_000)).toBe(true);
  expect(await port().lease('poll', 1_000)).toBe(true);
});

it('a chat that speaks is reachable again; a repeated message is no new word', async () => {
  const events: OutboxEvent[] = [];
  const outbox = createOutbox({ instant: new Set(), emit: (_tx, some) => void events.push(...some) });
  const block = () =>
    store.transact('test', (tx) =>
      tx.exec(
        tx.dialect.build.insertInto('chat_hold').values({
          channel: 'telegram',
          account: 'default',
          chat: '-100',
          until: null,
          unreachable_since: 5,
          reason: 'blocked',
        }),
      ),
    );
  const holds = async () => (await store.fetch(store.dialect.build.selectFrom('chat_hold').selectAll())).length;
  await block();
  await port({ outbox }).accept([message('a')]);
  expect(await holds()).toBe(0);
  expect(events).toEqual([
    { type: 'outbox.enqueued', chats: [{ channel: 'telegram', account: 'default', chat: '-100' }] },
  ]);
  await block();
  await port({ outbox }).accept([message('a')]);
  expect(await holds()).toBe(1);
});
