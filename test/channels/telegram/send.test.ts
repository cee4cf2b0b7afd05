import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import {
  type Behaviour,
  busy,
  dropAfter,
  dropBefore,
  hang,
  raw,
  refuse,
  serverError,
} from '../../support/fake-telegram/answers.ts';
import { type RigOptions, say, type TelegramRig, telegramRig } from './rig.ts';

const CHAT = 42;
const OLD_GROUP = -4455;
const NEW_GROUP = -1_001_234_567_890;

let rig: TelegramRig;
afterEach(() => rig.stop());
/** Not started: only sends reach the fake. */
const quiet = async (options: RigOptions = {}) => {
  rig = await telegramRig({ started: false, ...options });
  return rig;
};
const sendCalls = () => rig.fake.callsOf('sendMessage');

describe('the request', () => {
  it('is plain text without a preview, to a numeric chat', async () => {
    await quiet();
    await say(rig.channel, '*not bold* <b>https://x.test</b>');
    expect(sendCalls()).toEqual([
      { chat_id: CHAT, text: '*not bold* <b>https://x.test</b>', link_preview_options: { is_disabled: true } },
    ]);
  });

  it('answers the message that asked, in its topic; later parts do not reply', async () => {
    await quiet();
    const route = { chat: String(NEW_GROUP), chatKind: 'group', thread: '33', messageId: '7' } as const;
    await say(rig.channel, 'first', route);
    await say(rig.channel, 'second', route, false);
    const reply = { reply_parameters: { message_id: 7, allow_sending_without_reply: true } };
    expect(sendCalls()[0]).toMatchObject({ chat_id: NEW_GROUP, message_thread_id: 33, ...reply });
    expect(sendCalls()[1]).toMatchObject({ message_thread_id: 33 });
    expect(sendCalls()[1]).not.toHaveProperty('reply_parameters');
  });

  it('reports the platform’s id of the message', async () => {
    await quiet();
    const outcome = await say(rig.channel, 'hi');
    expect(outcome).toEqual({ outcome: 'sent', platformId: String(rig.fake.history(CHAT)[0]!.message_id) });
  });
});

describe('corrections', () => {
  it('A32: a topic that is gone: the answer goes to the group itself, once, and says so', async () => {
    await quiet();
    rig.fake.chats.of(NEW_GROUP).closedThreads.add(33);
    const outcome = await say(rig.channel, 'done', { chat: String(NEW_GROUP), chatKind: 'group', thread: '33' });
    expect(outcome.outcome).toBe('sent');
    expect(rig.fake.history(NEW_GROUP)).toMatchObject([{ text: expect.stringMatching(/^done\n\n.*topic.*gone/) }]);
    expect(rig.fake.history(NEW_GROUP)[0]).not.toHaveProperty('thread');
    expect(sendCalls()).toHaveLength(2);
  });

  it('case 30: a group that became a supergroup: the answer goes there, the outcome and the log say so', async () => {
    await quiet();
    rig.fake.chats.of(OLD_GROUP).migratedTo = NEW_GROUP;
    const outcome = await say(rig.channel, 'done', { chat: String(OLD_GROUP), chatKind: 'group', messageId: '7' });
    expect(outcome).toMatchObject({ outcome: 'sent', movedTo: String(NEW_GROUP) });
    expect(rig.fake.botTexts(NEW_GROUP)).toEqual(['done']);
    expect(rig.logText()).toContain(String(NEW_GROUP));
  });

  it('both at once end well', async () => {
    await quiet();
    rig.fake.chats.of(OLD_GROUP).migratedTo = NEW_GROUP;
    rig.fake.chats.of(NEW_GROUP).closedThreads.add(3);
    expect(await say(rig.channel, 'done', { chat: String(OLD_GROUP), chatKind: 'group', thread: '3' })).toMatchObject({
      outcome: 'sent',
    });
    expect(sendCalls()).toHaveLength(3);
  });

  it('a migration that leads in circles ends', async () => {
    await quiet();
    const circle = refuse(400, 'Bad Request: group chat was upgraded to a supergroup chat', {
      migrate_to_chat_id: NEW_GROUP,
    });
    rig.fake.script('sendMessage', circle, circle, circle);
    expect(await say(rig.channel, 'x', { chat: String(OLD_GROUP), chatKind: 'group' })).toMatchObject({
      outcome: 'permanent',
    });
    expect(sendCalls()).toHaveLength(2);
  });
});

describe('outcomes', () => {
  const permanent = (unreachable: boolean) => ({ outcome: 'permanent', unreachable });
  it.each<[string, Behaviour, object]>([
    ['too many requests', busy(33), { outcome: 'retry', scope: 'chat', afterMs: 33_000 }],
    ['too many requests, without a time', refuse(429, 'Too Many Requests'), { outcome: 'retry', scope: 'chat' }],
    ['a server error', serverError(), { outcome: 'retry', scope: 'chat' }],
    ['a bad gateway', refuse(502, 'Bad Gateway'), { outcome: 'retry', scope: 'chat' }],
    [
      'a gateway timeout: the request was passed on',
      refuse(504, 'Gateway Timeout'),
      { outcome: 'unknown', safe: false },
    ],
    ['a blocked bot', refuse(403, 'Forbidden: bot was blocked by the user'), permanent(true)],
    ['a kicked bot', refuse(403, 'Forbidden: bot was kicked from the supergroup chat'), permanent(true)],
    ['an unknown chat', refuse(400, 'Bad Request: chat not found'), permanent(true)],
    ['a deleted account', refuse(403, 'Forbidden: user is deactivated'), permanent(true)],
    [
      'no right to write',
      refuse(400, 'Bad Request: not enough rights to send text messages to the chat'),
      permanent(true),
    ],
    ['a closed topic', refuse(400, 'Bad Request: TOPIC_CLOSED'), permanent(false)],
    ['a text that is too long', refuse(400, 'Bad Request: message is too long'), permanent(false)],
    ['a revoked token', refuse(401, 'Unauthorized'), { outcome: 'retry', scope: 'channel', afterMs: 10 }],
    ['a token that never was', refuse(404, 'Not Found'), { outcome: 'retry', scope: 'channel', afterMs: 10 }],
    ['an HTML page of a proxy', raw(502, '<html><body>Bad Gateway</body></html>'), { outcome: 'retry', scope: 'chat' }],
    ['an emulator’s error without ok', raw(500, '{"message":"boom"}'), { outcome: 'retry', scope: 'chat' }],
    ['an answer of null', raw(200, 'null'), { outcome: 'retry', scope: 'chat' }],
    ['a wrong address', raw(404, '<h1>Not Found</h1>'), { outcome: 'retry', scope: 'chat' }],
    ['a socket dropped before the work', dropBefore(), { outcome: 'unknown', safe: false }],
    ['a socket dropped after the work', dropAfter(), { outcome: 'unknown', safe: false }],
  ])('%s', async (_what, behaviour, expected) => {
    await quiet();
    rig.fake.script('sendMessage', behaviour);
    const outcome = await say(rig.channel, 'x');
    expect(outcome).toMatchObject(expected);
    expect(outcome).toHaveProperty('error', expect.stringMatching(/./));
    expect(JSON.stringify(outcome)).not.toContain(rig.fake.token);
    expect(sendCalls()).toHaveLength(1);
  });

  it('a time is only promised where Telegram named one', async () => {
    await quiet();
    rig.fake.script('sendMessage', refuse(429, 'Too Many Requests'));
    expect(await say(rig.channel, 'x')).not.toHaveProperty('afterMs');
  });

  it('a call that hangs is given up, and nobody knows', async () => {
    await quiet({ timing: { callMs: 100 } });
    rig.fake.script('sendMessage', hang());
    expect(await say(rig.channel, 'x')).toMatchObject({ outcome: 'unknown', safe: false });
  });

  it('a call that is aborted on the way is unknown, one that was never made is not', async () => {
    await quiet();
    rig.fake.script('sendMessage', hang());
    const abort = new AbortController();
    const route = { channel: 'telegram', account: 'default', chat: '42', chatKind: 'direct' } as const;
    const message = { id: 'a', route, text: 'x', first: true, mayBeRepeat: false };
    const outcome = rig.channel.send(message, abort.signal);
    while (sendCalls().length === 0) await new Promise(setImmediate);
    abort.abort();
    expect(await outcome).toMatchObject({ outcome: 'unknown' });
    expect(await rig.channel.send(message, abort.signal)).toMatchObject({ outcome: 'retry' });
    expect(sendCalls()).toHaveLength(1);
  });

  it('a name that cannot be resolved holds the whole account', async () => {
    await quiet({ apiRoot: 'http://no-such-host.invalid' });
    expect(await say(rig.channel, 'x')).toMatchObject({ outcome: 'retry', scope: 'channel' });
  });

  it.each<[string, (socket: Socket) => void]>([
    ['hangs up on the handshake', (socket) => socket.destroy()],
    ['answers the handshake with plain HTTP', (socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')],
  ])('a server that %s was never told anything', async (_what, answer) => {
    const server = createServer((socket) => socket.on('error', () => undefined).once('data', () => answer(socket)));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    await quiet({ apiRoot: `https://127.0.0.1:${(server.address() as AddressInfo).port}` });
    const outcome = await say(rig.channel, 'x');
    await close(server);
    expect(outcome).toMatchObject({ outcome: 'retry', scope: 'channel' });
  });

  it('a refused token shows in the health, without the token, until Telegram accepts it again', async () => {
    await quiet();
    rig.fake.revoked = true;
    await say(rig.channel, 'x');
    expect(rig.channel.health()).toMatchObject({ ok: false, problem: 'Telegram refuses the bot token.' });
    rig.fake.revoked = false;
    await say(rig.channel, 'x');
    expect(rig.channel.health()).toMatchObject({ ok: true, lastOkAt: expect.any(Number) });
  });
});

async function close(server: Server): Promise<void> {
  await new Promise((resolve) => server.close(resolve));
}
