import fc from 'fast-check';
import type { Update } from 'grammy/types';
import { describe, expect, it } from 'vitest';
import type { IncomingMessage } from '../../../src/channels/channel.ts';
import { type BotSelf, toIncoming } from '../../../src/channels/telegram/mapping.ts';
import { Chats, type UserMessage } from '../../support/fake-telegram/chats.ts';

const ME: BotSelf = { id: 7100200300, username: 'errand_bot' };
const BIG_USER = 6_012_345_678; // user ids are above 2^31
const GROUP = -1_002_233_445_566;
const CHANNEL = { id: -1_009_988_776_655, type: 'channel', title: 'News' };

const map = (content: object, self = ME) =>
  toIncoming({ update_id: 5, ...content } as unknown as Update, 'default', self);
const said = (text: string, more: Partial<UserMessage> = {}, self = ME): IncomingMessage =>
  map({ message: new Chats().fromUser({ chat: BIG_USER, user: BIG_USER, text, ...more }) }, self);
const inGroup = (text: string, more: Partial<UserMessage> = {}, self = ME) =>
  said(text, { chat: GROUP, ...more }, self);

describe('direct chats', () => {
  it('every text is meant for the bot, and the route is the way back', () => {
    const message = said('hello 你好', { user: { id: BIG_USER, first_name: 'Ann', last_name: 'Lee' } });
    expect(message).toEqual({
      identity: 'update:5',
      kind: 'text',
      route: { channel: 'telegram', account: 'default', chat: '6012345678', chatKind: 'direct', messageId: '100' },
      sender: { id: '6012345678', name: 'Ann Lee' },
      text: 'hello 你好',
      addressed: true,
      sentAt: 1_700_000_100_000,
    });
  });

  it.each([
    ['/status@errand_bot', '/status'],
    ['/run@ERRAND_Bot hello name=x', '/run hello name=x'],
    ['/run hello', '/run hello'],
    ['/start PAYLOAD', '/start PAYLOAD'],
    ['上报 302 张三', '上报 302 张三'],
    ['see /run@errand_bot in the manual', 'see /run@errand_bot in the manual'],
  ])('%s is read as %s', (raw, text) => {
    expect(said(raw)).toMatchObject({ text, addressed: true });
  });

  it('case 44: a command for another bot is not ours, wherever it is written', () => {
    expect(said('/run@other_bot x')).toMatchObject({ text: '/run@other_bot x', addressed: false });
  });

  it('a caption counts as text', () => {
    const message = new Chats().fromUser({
      chat: 1,
      user: 1,
      text: '',
      extra: { photo: [], caption: '/run hello', text: undefined },
    });
    expect(map({ message })).toMatchObject({ kind: 'text', text: '/run hello' });
  });

  it('control characters and broken surrogates do not get in', () => {
    expect(said('a\u0000b\uD83Dc\r\nd')).toMatchObject({ text: 'ab\uFFFDc\nd' });
  });
});

describe('groups', () => {
  it.each([
    ['a command', '/status', '/status'],
    ['a command for this bot', '/status@Errand_Bot now', '/status now'],
    ['a mention at the start', '@errand_bot run it', 'run it'],
    ['a mention in the middle', '你好 @errand_bot 运行', '你好 运行'],
    ['a mention at the end, in other letters', 'run it @ERRAND_BOT', 'run it'],
    ['two mentions', '@errand_bot run @errand_bot', 'run'],
    ['a mention before a command', '@errand_bot /run hello', '/run hello'],
    ['a mention after emoji', '😀😀 @errand_bot go', '😀😀 go'],
  ])('%s is meant for the bot', (_what, raw, text) => {
    expect(inGroup(raw)).toMatchObject({
      kind: 'text',
      text,
      addressed: true,
      route: { chatKind: 'group', chat: String(GROUP) },
    });
  });

  it.each([
    ['case 46: talk', 'lunch at noon?'],
    ['case 44: a command for another bot', '/status@other_bot'],
    ['a mention of another bot', '@errand_bot2 hello'],
    ['a mention and then a command for another bot', '@errand_bot /run@other_bot x'],
    ['an address that contains the name', 'mail to me@errand_bot'],
    ['a path', 'see /usr/bin'],
  ])('%s is not', (_what, raw) => {
    expect(inGroup(raw)).toMatchObject({ kind: 'text', addressed: false });
  });

  it('a reply to the bot is meant for it, a reply to somebody else is not', () => {
    const replyTo = (from: object) => inGroup('yes', { replyTo: { message_id: 7, from } });
    expect(replyTo({ id: 7100200300, is_bot: true })).toMatchObject({ addressed: true });
    expect(replyTo({ id: 12, is_bot: false })).toMatchObject({ addressed: false });
  });

  it('talk in a topic the bot has opened is not a reply to the bot', () => {
    const replyTo = {
      message_id: 7,
      from: { id: 7100200300, is_bot: true },
      forum_topic_created: { name: 'x', icon_color: 1 },
    };
    expect(inGroup('talk', { thread: 7, replyTo })).toMatchObject({ addressed: false, route: { thread: '7' } });
  });

  it('a mention of the bot by its id, without a user name, counts', () => {
    const entities = [{ type: 'text_mention', offset: 0, length: 6, user: { id: 7100200300 } }];
    expect(inGroup('Errand go', { extra: { entities } })).toMatchObject({ addressed: true, text: 'go' });
  });

  it('while the bot does not know its name, a command for a named bot is left alone, a plain one is not', () => {
    const nameless: BotSelf = { id: ME.id, username: undefined };
    expect(inGroup('/status@errand_bot', {}, nameless)).toMatchObject({ addressed: false });
    expect(inGroup('/status', {}, nameless)).toMatchObject({ addressed: true });
  });

  it('case 41: a topic is kept as thread; the id of a reply thread or the General topic is not', () => {
    expect(inGroup('/status', { thread: 33 }).route.thread).toBe('33');
    expect(inGroup('/status', { thread: 1, topic: false }).route).not.toHaveProperty('thread');
  });

  it('an anonymous admin and a post in the name of a channel are nobody', () => {
    const anonymous = {
      user: { id: 1087968824, is_bot: true, username: 'GroupAnonymousBot' },
      extra: { sender_chat: { id: GROUP, type: 'supergroup', title: 'Ops' } },
    };
    expect(inGroup('/run x', anonymous).sender).toEqual({ name: 'Ops' });
    expect(inGroup('/run x', { user: 136817688, extra: { sender_chat: CHANNEL } }).sender.id).toBeUndefined();
    expect(inGroup('/run x', { user: { id: 99, is_bot: true } }).sender.id).toBeUndefined();
  });

  it('a channel post has no sender', () => {
    const post = { message_id: 1, date: 1, chat: CHANNEL, sender_chat: CHANNEL, text: '/run x' };
    expect(map({ channel_post: post })).toMatchObject({ kind: 'text', sender: {}, route: { chatKind: 'group' } });
    expect(map({ channel_post: post }).sender.id).toBeUndefined();
  });
});

describe('case 48: an edited message', () => {
  const edited = (more: object) =>
    map({ edited_message: { ...new Chats().fromUser({ chat: 42, user: 42, text: '/run b' }), ...more } });

  it('says that it is one, which message it changes and when', () => {
    expect(edited({ edit_date: 1_700_009_999 })).toMatchObject({
      kind: 'text',
      text: '/run b',
      edited: true,
      route: { chat: '42', messageId: '100' },
      sentAt: 1_700_009_999_000,
    });
  });

  it('without words is nothing, and a plain message is no edit', () => {
    expect(edited({ text: undefined, location: {} })).toMatchObject({ kind: 'other', text: '' });
    expect(said('/run b')).not.toHaveProperty('edited');
  });
});

it('pictures of one album share its name', () => {
  const picture = (extra: object) =>
    said('', { extra: { photo: [], text: undefined, caption: 'greet Ada', ...extra } });
  expect(picture({ media_group_id: '1397' }).album).toBe('1397');
  expect(picture({})).not.toHaveProperty('album');
});

describe('case 45: privacy mode', () => {
  const change = (from: string, to: string, self: BotSelf, type = 'supergroup') => {
    const { joined, limitedView } = map(
      {
        my_chat_member: {
          chat: { id: GROUP, type, title: 'Ops' },
          from: { id: BIG_USER, first_name: 'Ann' },
          date: 1,
          old_chat_member: { status: from },
          new_chat_member: { status: to },
        },
      },
      self,
    );
    return { joined, limitedView };
  };
  const limited = { ...ME, readsAll: false };
  const all = { ...ME, readsAll: true };

  it.each([
    ['added', change('left', 'member', limited), true, true],
    ['added again', change('kicked', 'member', limited), true, true],
    ['added as an administrator, who sees everything', change('left', 'administrator', limited), true, undefined],
    ['added where it sees everything', change('left', 'member', all), true, undefined],
    ['added before it knows', change('left', 'member', ME), true, undefined],
    ['made an administrator', change('member', 'administrator', limited), undefined, undefined],
    ['removed', change('member', 'left', limited), undefined, undefined],
    ['unblocked by a person', change('kicked', 'member', limited, 'private'), undefined, undefined],
    ['added to a channel', change('left', 'administrator', limited, 'channel'), undefined, undefined],
  ])('%s', (_what, told, joined, limitedView) => {
    expect(told).toEqual({ joined, limitedView });
  });

  it('is told with /start of a group', () => {
    expect(inGroup('/start@errand_bot', {}, limited).limitedView).toBe(true);
    expect(inGroup('/start', {}, all).limitedView).toBeUndefined();
    expect(inGroup('/status', {}, limited).limitedView).toBeUndefined();
    expect(said('/start', {}, limited).limitedView).toBeUndefined();
  });
});

describe('what is no text', () => {
  const message = new Chats().fromUser({ chat: 42, user: 42, text: '/run b' });
  it.each([
    ['a photo', { message: { ...message, text: undefined, photo: [] } }],
    ['a join', { message: { ...message, text: undefined, new_chat_members: [] } }],
    [
      'a bot that was blocked',
      { my_chat_member: { chat: { id: 42, type: 'private' }, from: { id: 42, first_name: 'A' }, date: 1 } },
    ],
    ['a group that became a supergroup', { message: { ...message, text: undefined, migrate_to_chat_id: GROUP } }],
  ])('%s is kept as a row that starts nothing', (_what, content) => {
    expect(map(content)).toMatchObject({
      identity: 'update:5',
      kind: 'other',
      text: '',
      addressed: false,
      route: { chat: '42' },
    });
  });

  it('an update of an unknown kind, or of a broken shape, is kept as well', () => {
    for (const content of [
      { poll: { id: '1' } },
      {},
      { message: { text: '/run x' } },
      { message: { chat: null } },
      { callback_query: {} },
    ]) {
      expect(map(content)).toMatchObject({ identity: 'update:5', kind: 'other', text: '', addressed: false });
    }
  });

  it('whatever the shape: it becomes a message, with a chat that is a number and no invented sender', () => {
    const key = fc.constantFrom(
      'message',
      'callback_query',
      'my_chat_member',
      'edited_message',
      'text',
      'from',
      'chat',
      'id',
      'type',
      'date',
      'entities',
    );
    const leaf = fc.constantFrom(null, undefined, true, 42, -100.5, Number.NaN, '', 'private', '/run x', '\uD83D');
    const { tree } = fc.letrec<{ tree: unknown }>((tie) => ({
      tree: fc.oneof(
        { maxDepth: 4 },
        leaf,
        fc.dictionary(key, tie('tree'), { maxKeys: 4 }),
        fc.array(tie('tree'), { maxLength: 2 }),
      ),
    }));
    fc.assert(
      fc.property(fc.dictionary(key, tree, { maxKeys: 3 }), (content) => {
        const { identity, route, sender, text } = map(content);
        expect(identity).toBe('update:5');
        expect(route.chat).toMatch(/^-?\d+$/);
        expect(sender.id ?? '1').toMatch(/^\d+$/);
        expect(typeof text).toBe('string');
      }),
      { numRuns: 1000 },
    );
  });
});

describe('buttons', () => {
  const from = { id: BIG_USER, is_bot: false, first_name: 'Ann' };
  const under = {
    message_id: 77,
    date: 1,
    chat: { id: GROUP, type: 'supergroup', title: 'Ops' },
    is_topic_message: true,
    message_thread_id: 9,
  };

  it('a press carries its data and the place of its message', () => {
    expect(map({ callback_query: { id: 'q', from, message: under, data: 'approve:K7' } })).toEqual({
      identity: 'update:5',
      kind: 'button',
      route: {
        channel: 'telegram',
        account: 'default',
        chat: String(GROUP),
        chatKind: 'group',
        thread: '9',
        messageId: '77',
      },
      sender: { id: String(BIG_USER), name: 'Ann' },
      text: 'approve:K7',
      addressed: true,
    });
  });

  it('a press under a message that is out of reach, or under none, still has a place', () => {
    const inaccessible = { message_id: 77, date: 0, chat: { id: 42, type: 'private' } };
    expect(map({ callback_query: { id: 'q', from, message: inaccessible, data: 'x' } }).route).toMatchObject({
      chat: '42',
      chatKind: 'direct',
    });
    expect(map({ callback_query: { id: 'q', from, data: 'x' } }).route).toMatchObject({
      chat: String(BIG_USER),
      chatKind: 'direct',
    });
  });
});
