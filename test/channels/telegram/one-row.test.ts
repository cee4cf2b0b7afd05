import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Update } from 'grammy/types';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/clock.ts';
import { createChannelPort } from '../../../src/intake/inbox.ts';
import { openSqlite } from '../../../src/store/sqlite.ts';
import type { Store } from '../../../src/store/store.ts';
import { type FakeTelegram, startFakeTelegram } from '../../support/fake-telegram/fake-telegram.ts';
import { inboxRows } from '../../support/inbox.ts';
import { until } from '../../support/until.ts';
import { type RigOptions, SECRET, type TelegramRig, telegramRig } from './rig.ts';

let folder: string;
let store: Store;
let fake: FakeTelegram;
const rigs: TelegramRig[] = [];
let woken = 0;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-one-row-'));
  store = openSqlite({ path: join(folder, 'errand.db'), clock: systemClock });
  fake = await startFakeTelegram();
  woken = 0;
});
afterEach(async () => {
  for (const rig of rigs.splice(0)) await rig.stop();
  await fake.stop();
  await store.close();
  await rm(folder, { recursive: true, force: true });
});

/** One instance of the gateway over the shared store. */
async function instance(holder: string, options: RigOptions = {}): Promise<TelegramRig> {
  const onStored = () => {
    woken += 1;
  };
  const port = createChannelPort({ store, channel: 'telegram', account: 'default', holder, onStored });
  const rig = await telegramRig({ fake, port: port as never, ...options });
  rigs.push(rig);
  return rig;
}
const byWebhook = { mode: 'webhook', publicUrl: undefined } as const;
const knock = (rig: TelegramRig, update: Update) =>
  rig.channel.doors[0]!.open({
    query: {},
    headers: { 'x-telegram-bot-api-secret-token': SECRET },
    body: JSON.stringify(update),
  });
const texts = async () => (await inboxRows(store)).map((row) => row.text);

describe('one update is one row', () => {
  it('case 9, 10: the door answers once it is stored, whatever the work takes; three deliveries are one', async () => {
    // Nobody works anything off here: the answer can only come from the store.
    const rig = await instance('a', byWebhook);
    const update = fake.userSends({ chat: 42, user: 42, text: '/run hello' });
    for (let n = 0; n < 3; n += 1) expect((await knock(rig, update)).status).toBe(200);
    expect(await texts()).toEqual(['/run hello']);
    expect(woken).toBe(1);
  });

  it('case 11: two instances take the same delivery at the same time', async () => {
    const [a, b] = [await instance('a', byWebhook), await instance('b', byWebhook)];
    const update = fake.userSends({ chat: 42, user: 42, text: 'hi' });
    const answers = await Promise.all([knock(a, update), knock(b, update), knock(a, update), knock(b, update)]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(await texts()).toEqual(['hi']);
  });

  it('webhook and polling at once, and a restart that is given everything again', async () => {
    const updates = ['a', 'b', 'c'].map((text) => fake.userSends({ chat: 42, user: 42, text }));
    const door = await instance('a', byWebhook);
    await knock(door, updates[1]!);
    const polling = await instance('b');
    await until(async () => (await texts()).length === 3, 'all three');
    for (const update of updates) await knock(door, update);
    await polling.channel.stop();
    // As after a restart whose offset was lost.
    await store.transact('test.forget', (tx) => tx.exec(tx.dialect.build.deleteFrom('channel_state')));
    const again = await instance('c');
    fake.userSends({ chat: 42, user: 42, text: 'd' });
    await until(async () => (await texts()).includes('d'), 'the next one');
    await again.channel.stop();
    expect((await texts()).sort()).toEqual(['a', 'b', 'c', 'd']);
  });

  it('case 6: a process that dies before it could store leaves the update with Telegram, and the next one stores it', async () => {
    let dead = true;
    store.onBeforeCommit(async (tx) => {
      const rows = await tx.fetch(tx.dialect.build.selectFrom('inbox').select('id'));
      if (dead && rows.length > 0) throw new Error('the process dies here');
    });
    const update = fake.userSends({ chat: 42, user: 42, text: 'hi' });
    const first = await instance('a');
    await until(() => /cannot be stored/.test(first.channel.health().problem ?? ''), 'the failure');
    await first.channel.stop();
    expect(fake.updates.confirmed.has(update.update_id)).toBe(false);
    expect(await texts()).toEqual([]);
    dead = false;
    await instance('b');
    await until(() => fake.updates.confirmed.has(update.update_id), 'the confirmation');
    expect(await texts()).toEqual(['hi']);
  });

  it('case 12, 13: of two instances one polls, by a stored lease, and the other takes over', async () => {
    const a = await instance('a');
    await until(() => fake.callsOf('getUpdates').length > 0, 'a poll');
    const b = await instance('b');
    await until(() => /Another process/.test(b.channel.health().problem ?? ''), 'b to stand by');
    expect(b.channel.health().ok).toBe(true);
    await a.channel.stop();
    fake.userSends({ chat: 42, user: 42, text: 'hi' });
    await until(async () => (await texts()).length === 1, 'b to take over');
    expect(b.channel.health()).toMatchObject({ ok: true, lastPollAt: expect.any(Number) });
  });
});

it('case 39: the token is in no log line and no health, also where the network fails', async () => {
  const rig = await instance('a', { apiRoot: 'http://127.0.0.1:1' });
  await until(
    () => rig.channel.health().ok === false && rig.logText().includes('telegram.poll_failed'),
    'a failed poll',
  );
  const secret = fake.token.split(':')[1]!;
  expect(rig.logText()).not.toContain(secret);
  expect(JSON.stringify(rig.channel.health())).not.toContain(secret);
});
