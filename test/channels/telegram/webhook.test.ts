import { afterEach, describe, expect, it } from 'vitest';
import type { ChannelDoor } from '../../../src/channels/channel.ts';
import { busy, serverError } from '../../support/fake-telegram/answers.ts';
import { until } from '../../support/until.ts';
import { type RigOptions, SECRET, type TelegramRig, telegramRig } from './rig.ts';

let rig: TelegramRig;
afterEach(() => rig.stop());
const start = async (options: RigOptions = {}) => {
  rig = await telegramRig({ mode: 'webhook', ...options });
  return rig;
};
const door = (): ChannelDoor => rig.channel.doors[0]!;
const update = (id: unknown = 1) => ({
  update_id: id,
  message: { message_id: 1, date: 1, chat: { id: 42, type: 'private' }, from: { id: 42 }, text: 'hi' },
});
const knock = (body: unknown, secret: string | string[] | undefined = SECRET) =>
  door().open({
    query: {},
    headers: { 'x-telegram-bot-api-secret-token': secret, 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });

describe('the door', () => {
  it('stands where the contract says, for each account its own', async () => {
    await start({ started: false });
    expect(door()).toMatchObject({ method: 'POST', path: '/channels/telegram/webhook', bodyLimit: 1_048_576 });
    const second = await telegramRig({ mode: 'webhook', account: 'ops', started: false, fake: rig.fake });
    expect(second.channel.doors[0]!.path).toBe('/channels/telegram/webhook/ops');
    await second.stop();
  });

  it('200 means stored', async () => {
    await start({ started: false });
    expect(await knock(update())).toMatchObject({ status: 200, body: '' });
    expect(rig.port.rows).toMatchObject([{ identity: 'update:1', text: 'hi', addressed: true }]);
    expect(await knock(update())).toMatchObject({ status: 200 });
    expect(rig.port.rows).toHaveLength(1);
  });

  it.each([
    ['a wrong secret', 'wrong'],
    ['no secret', undefined],
    ['an empty secret', ''],
    ['two secrets', [SECRET, SECRET]],
    ['a secret with something behind it', `${SECRET}x`],
  ])('%s is refused, whatever the body, and stores nothing', async (_what, secret) => {
    await start({ started: false });
    for (const body of [update(), 'no json']) {
      const headers = { 'x-telegram-bot-api-secret-token': secret };
      const answer = await door().open({
        query: {},
        headers,
        body: typeof body === 'string' ? body : JSON.stringify(body),
      });
      expect(answer.status).toBe(401);
      expect(answer.body).not.toContain(SECRET);
    }
    expect(rig.port.rows).toEqual([]);
  });

  it.each([
    '',
    'no json',
    '[]',
    'null',
    '{}',
    '42',
    JSON.stringify(update('1')),
    JSON.stringify(update(1.5)),
    JSON.stringify(update(null)),
  ])('a body that is no update is refused: %s', async (body) => {
    await start({ started: false });
    expect((await knock(body)).status).toBe(400);
    expect(rig.port.rows).toEqual([]);
  });

  it('an update of an unknown kind is stored and taken', async () => {
    await start({ started: false });
    expect(await knock({ update_id: 9, brand_new: {} })).toMatchObject({ status: 200 });
    expect(rig.port.rows).toMatchObject([{ identity: 'update:9', kind: 'other' }]);
  });

  it('case 6, 11: 503 when it could not be stored, and the health says so until the next one is', async () => {
    await start({ started: false });
    rig.port.failNext();
    expect((await knock(update())).status).toBe(503);
    expect(rig.channel.health()).toMatchObject({ ok: false, problem: expect.stringMatching(/cannot be stored/) });
    expect((await knock(update())).status).toBe(200);
    expect(rig.channel.health()).toMatchObject({ ok: true });
  });

  it('case 11: the same update at two doors at once is one row', async () => {
    await start({ started: false });
    const answers = await Promise.all([knock(update()), knock(update())]);
    expect(answers.map((answer) => answer.status)).toEqual([200, 200]);
    expect(rig.port.rows).toHaveLength(1);
  });
});

describe('registration', () => {
  it('the webhook is set with secret and kinds of update, and messages come through it', async () => {
    await start();
    await until(() => rig.fake.updates.webhook, 'the webhook');
    expect(rig.fake.callsOf('setWebhook')).toEqual([
      {
        url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+\/channels\/telegram\/webhook$/),
        secret_token: SECRET,
        allowed_updates: ['message', 'edited_message', 'callback_query', 'my_chat_member'],
      },
    ]);
    rig.fake.userSends({ chat: 42, user: 42, text: 'hi' });
    await until(() => rig.fake.updates.deliveries.length > 0, 'the delivery');
    expect(rig.port.rows).toHaveLength(1);
    expect(rig.fake.updates.deliveries.map(({ status }) => status)).toEqual([200]);
    expect(rig.fake.callsOf('getUpdates')).toEqual([]);
  });

  it('it is tried again until it stands, and the health tells', async () => {
    await start({ started: false });
    rig.fake.script('setWebhook', serverError(), serverError(), busy(0));
    rig.fake.script('getMe', serverError());
    await rig.channel.start();
    await until(() => rig.fake.updates.webhook, 'the webhook');
    await until(() => rig.channel.health().ok, 'health');
    expect(rig.logText()).not.toContain(rig.fake.token);
  });

  it('a webhook that cannot be set is a problem, not a crash', async () => {
    await start({ started: false });
    await rig.fake.goAway();
    await rig.channel.start();
    await until(() => /webhook is not confirmed/.test(rig.channel.health().problem ?? ''), 'the problem');
    expect(rig.channel.health().ok).toBe(false);
  });

  it('without a public address somebody else registers it, and the door works', async () => {
    await start({ publicUrl: undefined });
    await until(() => rig.channel.health().ok, 'getMe');
    expect(await knock(update())).toMatchObject({ status: 200 });
    expect(rig.fake.callsOf('setWebhook')).toEqual([]);
  });

  it('a press through the webhook is answered at once', async () => {
    await start();
    await until(() => rig.fake.updates.webhook, 'the webhook');
    rig.fake.userPresses({ user: 42, data: 'x' });
    await until(() => rig.fake.callsOf('answerCallbackQuery').length === 1, 'the answer');
    expect(rig.port.rows).toMatchObject([{ kind: 'button', text: 'x' }]);
  });
});
