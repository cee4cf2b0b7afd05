import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { createTelegramChannel } from '../../../src/channels/telegram/channel.ts';
import { manualClock, systemClock } from '../../../src/clock.ts';
import { silentLog } from '../../../src/log.ts';
import {
  busy,
  dropAfter,
  dropBefore,
  hang,
  raw,
  refuse,
  serverError,
  wait,
} from '../../support/fake-telegram/answers.ts';
import { until } from '../../support/until.ts';
import { FAST, type RigOptions, say, type TelegramRig, telegramRig } from './rig.ts';

let rig: TelegramRig;
const others: TelegramRig[] = [];
afterEach(async () => {
  for (const other of others.splice(0)) await other.stop();
  await rig.stop();
});
const start = async (options: RigOptions = {}) => {
  rig = await telegramRig(options);
  return rig;
};
const ann = (text: string) => rig.fake.userSends({ chat: 42, user: 42, text });
const texts = () => rig.port.rows.map((row) => row.text);
const stored = (count: number) => until(() => rig.port.rows.length === count, `${count} rows`);
const polls = () => rig.fake.callsOf('getUpdates');
const problem = (pattern: RegExp) => until(() => pattern.test(rig.channel.health().problem ?? ''), String(pattern));

describe('the offset', () => {
  it('case 1: is stored with the messages, and only the next poll confirms them', async () => {
    await start();
    const update = ann('one');
    await stored(1);
    expect(rig.port.peek('offset')).toBe(update.update_id + 1);
    await until(() => rig.fake.updates.confirmed.has(update.update_id), 'the confirmation');
    expect(polls().at(-1)).toMatchObject({ offset: update.update_id + 1 });
  });

  it('does not move while messages cannot be stored', async () => {
    await start({ started: false });
    rig.port.failNext(4);
    const update = ann('one');
    await rig.channel.start();
    await until(() => rig.port.rejections === 4, 'four rejections');
    expect(polls().every((params) => params.offset === undefined)).toBe(true);
    await stored(1);
    await until(() => rig.fake.updates.confirmed.has(update.update_id), 'the confirmation');
  });

  it('case 2: survives a restart: a new process goes on where the row says', async () => {
    await start();
    const update = ann('one');
    await stored(1);
    await rig.channel.stop();
    const before = polls().length;
    await rig.channel.start();
    await until(() => polls().length > before, 'a poll of the new process');
    expect(polls()[before]).toMatchObject({ offset: update.update_id + 1 });
  });

  it('follows ids that restart lower after a quiet week', async () => {
    await start();
    const before = ann('before');
    await until(() => rig.fake.updates.confirmed.has(before.update_id), 'the queue to be empty');
    rig.fake.updates.nextId = 1000;
    ann('after');
    await stored(2);
    await until(() => rig.port.peek('offset') === 1001, 'the lower offset');
    await until(() => rig.fake.updates.confirmed.has(1000), 'the confirmation');
    expect(texts()).toEqual(['before', 'after']);
  });

  it('case 3, A22: a restart storm with one unconfirmed message stores it once', async () => {
    await start({ started: false });
    ann('/deploy');
    for (let n = 0; n < 5; n += 1) {
      // The store keeps the message but the process dies before the next poll: the platform delivers again.
      await rig.channel.start();
      await stored(1);
      await rig.channel.stop();
    }
    expect(texts()).toEqual(['/deploy']);
  });
});

describe('what is asked for', () => {
  it('each poll names timeout, limit and the kinds of update', async () => {
    await start();
    await until(() => polls().length > 0, 'a poll');
    expect(polls()[0]).toEqual({
      timeout: 20,
      limit: 100,
      allowed_updates: ['message', 'edited_message', 'callback_query', 'my_chat_member'],
    });
  });

  it('case 7: many messages come in order, over several batches, with one odd one among them', async () => {
    await start({ started: false });
    for (let n = 0; n < 120; n += 1) ann(`m${n}`);
    rig.fake.updates.push({ message: { broken: true } });
    for (let n = 120; n < 230; n += 1) ann(`m${n}`);
    await rig.channel.start();
    await stored(231);
    expect(texts().filter((text) => text !== '')).toEqual(Array.from({ length: 230 }, (_, n) => `m${n}`));
  });

  it('the name is asked for before the first poll, so that a command with it is recognised, and kept', async () => {
    await start({ started: false });
    let answered = () => {};
    rig.fake.script('getMe', wait(new Promise<void>((resolve) => (answered = resolve))));
    rig.fake.userSends({ chat: -100, user: 42, text: '/status@errand_bot' });
    await rig.channel.start();
    await until(() => rig.fake.callsOf('getMe').length > 0, 'the question');
    await pause(50);
    answered();
    await stored(1);
    expect(rig.port.rows[0]).toMatchObject({ text: '/status', addressed: true });
    expect(rig.port.peek('me')).toEqual({ id: rig.fake.botId, username: 'errand_bot', readsAll: false });
  });

  it('messages come in also when the name cannot be learned', async () => {
    await start({ started: false });
    rig.fake.script('getMe', ...Array.from({ length: 50 }, serverError));
    ann('/status');
    await rig.channel.start();
    await stored(1);
    expect(rig.port.rows[0]).toMatchObject({ text: '/status', addressed: true });
  });

  it('the command menus are published for each kind of chat and language; that this fails hurts nobody', async () => {
    const commands = [{ command: 'status', description: 'What runs' }];
    const menus = [
      { scope: 'private', commands },
      { scope: 'group', lang: 'zh', commands },
      { scope: 'admins', commands },
    ] as const;
    await start({ menus, started: false });
    rig.fake.script('setMyCommands', raw(500, '{"message":"no"}'));
    await rig.channel.start();
    await until(() => rig.fake.callsOf('setMyCommands').length === 1, 'the refused menu');
    ann('hi');
    await stored(1);
    await rig.channel.stop();
    await rig.channel.start();
    await until(() => rig.fake.commands.length === 3, 'the menus');
    expect(rig.fake.callsOf('setMyCommands').slice(1)).toEqual([
      { commands, scope: { type: 'all_private_chats' } },
      { commands, scope: { type: 'all_group_chats' }, language_code: 'zh' },
      { commands, scope: { type: 'all_chat_administrators' } },
    ]);
  });
});

describe('buttons', () => {
  it('case 35: a press is stored and its spinner stopped', async () => {
    await start();
    rig.fake.userPresses({ user: 42, data: 'cancel:K7' });
    await stored(1);
    expect(rig.port.rows[0]).toMatchObject({ kind: 'button', text: 'cancel:K7' });
    await until(() => rig.fake.callsOf('answerCallbackQuery').length === 1, 'the answer');
  });

  it('a press that could not be stored is answered only when it is', async () => {
    await start({ started: false });
    rig.port.failNext(2);
    rig.fake.userPresses({ user: 42, data: 'x' });
    await rig.channel.start();
    await until(() => rig.fake.callsOf('answerCallbackQuery').length > 0, 'the answer');
    expect(rig.port.rows).toHaveLength(1);
    expect(rig.fake.callsOf('answerCallbackQuery')).toHaveLength(1);
  });

  it('an answer that is refused or never comes holds up nothing', async () => {
    await start();
    rig.fake.script(
      'answerCallbackQuery',
      refuse(400, 'Bad Request: query is too old and response timeout expired or query ID is invalid'),
      hang(),
    );
    rig.fake.userPresses({ user: 42, data: 'one' });
    rig.fake.userPresses({ user: 42, data: 'two' });
    ann('three');
    await stored(3);
    expect(texts()).toEqual(['one', 'two', 'three']);
  });
});

describe('trouble', () => {
  it('a webhook that somebody has set is removed, and polling goes on', async () => {
    await start({ started: false });
    rig.fake.updates.setWebhook({ url: 'http://127.0.0.1:1/', secret: undefined });
    await rig.channel.start();
    await until(() => rig.fake.updates.webhook === undefined, 'the webhook to go');
    ann('hi');
    await stored(1);
    await until(() => rig.channel.health().ok, 'health');
  });

  it('a webhook that is set while polling is removed as well', async () => {
    await start();
    await until(() => polls().length > 0, 'a poll');
    rig.fake.updates.setWebhook({ url: 'http://127.0.0.1:1/', secret: undefined });
    await until(() => rig.fake.updates.webhook === undefined, 'the webhook to go');
    ann('hi');
    await stored(1);
  });

  it('case 12: two instances with one token: the loser says so, stays alive and takes over when the other leaves', async () => {
    await start();
    await until(() => polls().length > 0, 'a poll');
    const other = await telegramRig({ fake: rig.fake });
    others.push(other);
    const loses = (one: TelegramRig) => /Another instance/.test(one.channel.health().problem ?? '');
    await until(() => loses(rig) || loses(other), 'one of them to lose');
    await other.channel.stop();
    ann('hi');
    await stored(1);
    await until(() => rig.channel.health().ok, 'health');
  });

  it('a refused token shows in the health and is tried again', async () => {
    await start({ started: false });
    rig.fake.revoked = true;
    await rig.channel.start();
    await problem(/refuses the bot token/);
    expect(rig.channel.health().ok).toBe(false);
    rig.fake.revoked = false;
    ann('hi');
    await stored(1);
    await until(() => rig.channel.health().ok, 'health');
  });

  it('a flood wait is kept to the second, not guessed', async () => {
    await start({ started: false });
    rig.fake.script('getUpdates', busy(3600));
    ann('hi');
    await rig.channel.start();
    await problem(/429/);
    // The ordinary backoff is 5 ms: twenty of those pass without another poll.
    await pause(100);
    expect(polls()).toHaveLength(1);
  });

  it.each([
    ['a server error', serverError()],
    ['an HTML page', raw(502, '<html>')],
    ['an answer of null', raw(200, 'null')],
    ['a result that is no list', raw(200, '{"ok":true,"result":null}')],
    ['a dropped socket', dropBefore()],
    ['an answer lost on the way', dropAfter()],
    ['an update without an id', raw(200, '{"ok":true,"result":[{"message":{}},null]}')],
  ])('%s is got over', async (_what, behaviour) => {
    await start({ started: false, timing: { pollMs: 0 } });
    rig.fake.script('getUpdates', behaviour, behaviour);
    ann('hi');
    await rig.channel.start();
    await stored(1);
    await until(() => rig.channel.health().ok, 'health');
  });

  it('case 5: a socket that hangs is given up and polling goes on', async () => {
    await start({ started: false, timing: { pollMs: 0, pollMarginMs: 100 } });
    rig.fake.script('getUpdates', hang());
    ann('hi');
    await rig.channel.start();
    await stored(1);
  });

  it('a platform that is away at the start is waited for', async () => {
    await start({ started: false });
    await rig.fake.goAway();
    await rig.channel.start();
    await problem(/cannot be reached.*ECONNREFUSED/);
    await rig.fake.comeBack();
    ann('hi');
    await stored(1);
    await until(() => rig.channel.health().ok, 'health');
    expect(rig.logText()).not.toContain(rig.fake.token);
  });

  it('a disk that is full shows in the health until it is not', async () => {
    await start({ started: false });
    rig.port.failNext(1_000_000);
    ann('hi');
    await rig.channel.start();
    await problem(/cannot be stored/);
    rig.port.failNext(-1_000_000 + rig.port.rejections);
    await stored(1);
    await until(() => rig.channel.health().ok, 'health');
  });

  it('a sent message does not hide that polling is broken', async () => {
    await start({ started: false });
    rig.fake.script('getUpdates', refuse(401, 'Unauthorized'), hang());
    await rig.channel.start();
    await problem(/refuses/);
    await until(() => polls().length === 2, 'the hanging poll');
    await say(rig.channel, 'hi');
    expect(rig.channel.health()).toMatchObject({ ok: false });
  });

  it('case 5: the age of the last completed poll is told apart from everything else that works', async () => {
    const clock = manualClock(systemClock.now());
    await start({ clock });
    ann('hi');
    await until(() => rig.channel.health().lastPollAt !== undefined, 'a poll');
    const polledAt = rig.channel.health().lastPollAt!;
    clock.advance(5_000);
    await say(rig.channel, 'hi');
    expect(rig.channel.health()).toMatchObject({ lastPollAt: polledAt });
  });

  it('case 5: silence for longer than two polls is not health', async () => {
    const clock = manualClock(systemClock.now());
    await start({ clock });
    const update = ann('hi');
    // The next poll, which confirms it, waits: nothing more comes in by itself.
    await until(() => rig.fake.updates.confirmed.has(update.update_id), 'the confirmation');
    expect(rig.channel.health().ok).toBe(true);
    clock.advance(3 * (FAST.pollMs + FAST.pollMarginMs));
    const silent = { ok: false, problem: expect.stringMatching(/silent for \d+ s/) };
    expect(rig.channel.health()).toMatchObject(silent);
    // A sent message proves that Telegram is there, not that anything would come in.
    expect(await say(rig.channel, 'hi')).toMatchObject({ outcome: 'sent' });
    expect(rig.channel.health()).toMatchObject(silent);
    ann('again');
    await until(() => rig.channel.health().ok, 'health');
  });
});

describe('one poller among several processes', () => {
  it('case 13: a process without the lease stands by, says so and asks Telegram for nothing', async () => {
    await start({ started: false });
    rig.port.holdElsewhere('poll');
    ann('hi');
    await rig.channel.start();
    await problem(/Another process of this gateway/);
    expect(rig.channel.health().ok).toBe(true);
    expect(polls()).toEqual([]);
    rig.port.holdElsewhere('poll', false);
    await stored(1);
  });

  it('the lease outlasts the longest poll, and is let go when polling stops', async () => {
    await start();
    await until(() => polls().length > 0, 'a poll');
    expect(rig.port.leases.get('poll')).toBeGreaterThan(FAST.pollMs + FAST.pollMarginMs);
    await rig.channel.stop();
    expect(rig.port.leases.get('poll')).toBeLessThanOrEqual(1);
  });
});

describe('starting and stopping', () => {
  it('stopping ends a poll that waits, at once', async () => {
    await start({ timing: { pollMs: 50_000, pollMarginMs: 100_000 } });
    await until(() => polls().length > 0, 'a poll');
    const startedAt = performance.now();
    await rig.channel.stop();
    // The poll would last 50 s.
    expect(performance.now() - startedAt).toBeLessThan(20_000);
    ann('too late');
    await pause(50);
    expect(rig.port.rows).toEqual([]);
  });

  it('a server that never waits is not asked without pause', async () => {
    await start({ timing: { pollMs: 0, emptyPauseMs: 3_600_000 } });
    await until(() => polls().length === 1, 'the first poll');
    await pause(100);
    expect(polls()).toHaveLength(1);
  });

  it('a bad option is one clear message', () => {
    const good = {
      token: '1:a',
      account: 'default',
      mode: 'polling',
      port: rig.port,
      clock: systemClock,
      log: silentLog,
    } as const;
    expect(() => createTelegramChannel({ ...good, token: ' ' })).toThrow(/token is empty or malformed/);
    expect(() => createTelegramChannel({ ...good, mode: 'webhook' })).toThrow(/needs a secret/);
    expect(() => createTelegramChannel({ ...good, mode: 'webhook', webhookSecret: 'has spaces' })).toThrow(
      /needs a secret/,
    );
    expect(createTelegramChannel({ ...good, apiRoot: 'http://127.0.0.1:1///' }).doors).toEqual([]);
  });
});
