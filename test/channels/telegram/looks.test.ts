import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import type { Mark } from '../../../src/channels/channel.ts';
import { entitiesOf } from '../../../src/channels/telegram/entities.ts';
import { readMarkdown } from '../../../src/markdown.ts';
import { bold, code, pre, rich } from '../../../src/rich-text.ts';
import { busy, dropAfter, refuse } from '../../support/fake-telegram/answers.ts';
import { anyMarks, anyText } from '../../support/rich-texts.ts';
import { type RigOptions, say, type TelegramRig, telegramRig } from './rig.ts';

const CHAT = 42;
let rig: TelegramRig;
afterEach(() => rig.stop());
/** Not started: only sends reach the fake. */
const quiet = async (options: RigOptions = {}) => {
  rig = await telegramRig({ started: false, ...options });
  return rig;
};
const texts = () => rig.fake.callsOf('sendMessage');
const files = () => rig.fake.callsOf('sendDocument');
const shown = () => rig.fake.history(CHAT);
/** More than four parts. */
const LONG = Array.from({ length: 4_000 }, (_, n) => `line ${n}`).join('\n');
const parts = (text: string, taskId?: string) => rig.channel.split({ text, ...(taskId !== undefined && { taskId }) });

describe('looks', () => {
  it('case 15, 16, 17: are entities beside the text; nothing is escaped and nothing is parsed', async () => {
    await quiet();
    const awkward = [
      'build-1.2 (ok)!',
      'a..b',
      'https://x.test/a_b_c_d',
      String.fromCharCode(...Array.from({ length: 95 }, (_, n) => n + 32)),
    ];
    for (const text of awkward) {
      expect(await say(rig.channel, rich`${bold(text)} ${text}`)).toMatchObject({ outcome: 'sent' });
      expect(texts().at(-1)).toMatchObject({
        text: `${text} ${text}`,
        entities: [{ type: 'bold', offset: 0, length: text.length }],
      });
      expect(texts().at(-1)).not.toHaveProperty('parse_mode');
    }
  });

  it('case 18: of every kind that Telegram has, code with its language', async () => {
    await quiet();
    const source = '# Title\n> *quoted* `x`\n```js\na_b*c\n```\n[docs](https://x.test) [mail](mailto:a@b.test)';
    const [part] = rig.channel.split(readMarkdown(source));
    expect(await say(rig.channel, part!)).toMatchObject({ outcome: 'sent' });
    expect(texts()[0]!.entities).toMatchObject([
      { type: 'bold', offset: 0, length: 5 },
      { type: 'blockquote', offset: 6, length: 8 },
      { type: 'italic' },
      { type: 'code' },
      { type: 'pre', language: 'js', length: 5 },
      { type: 'text_link', url: 'https://x.test' },
    ]);
    expect(texts()[0]!.text).toContain('mail (mailto:a@b.test)');
  });

  it('are at most a hundred', () => {
    const marks = Array.from({ length: 300 }, (_, n): Mark => ({ kind: 'bold', start: 2 * n, length: 1 }));
    expect(entitiesOf(marks)).toHaveLength(100);
  });

  it.each([
    "Bad Request: can't parse entities: Can't find end of the entity starting at byte offset 42",
    'Bad Request: entity begins in a middle of a UTF-16 symbol at byte offset 7',
  ])('case 15: refused (%s), the text is sent once more without them', async (description) => {
    await quiet();
    rig.fake.script('sendMessage', refuse(400, description));
    expect(await say(rig.channel, rich`${bold('a')} b`)).toMatchObject({ outcome: 'sent' });
    expect(texts()).toHaveLength(2);
    expect(texts()[1]).not.toHaveProperty('entities');
    expect(rig.fake.botTexts(CHAT)).toEqual(['a b']);
    expect(rig.logText()).toContain('telegram.send_corrected');
  });

  it('A15: a plain text that is refused for its entities is not tried for ever', async () => {
    await quiet();
    const no = refuse(400, "Bad Request: can't parse entities");
    rig.fake.script('sendMessage', no, no, no);
    expect(await say(rig.channel, rich`${bold('a')} b`)).toMatchObject({ outcome: 'permanent', unreachable: false });
    expect(texts()).toHaveLength(2);
  });

  it('any text with any looks is taken by Telegram, whole', async () => {
    await quiet();
    await fc.assert(
      fc.asyncProperty(anyText, anyMarks, fc.integer({ min: 1, max: 8 }), async (text, marks, times) => {
        for (const part of rig.channel.split({ text: text.repeat(times), marks }))
          expect(await say(rig.channel, part)).toMatchObject({ outcome: 'sent' });
      }),
      { numRuns: 60 },
    );
    // None of them needed a second try.
    expect(rig.logText()).not.toContain('send_corrected');
  });
});

describe('what is too long for parts', () => {
  it('case 25: arrives as head, tail and a document with all of it', async () => {
    await quiet();
    for (const [n, part] of parts(LONG).entries())
      expect(await say(rig.channel, part, { messageId: '7' }, n === 0)).toMatchObject({ outcome: 'sent' });
    expect(shown().map(({ text }) => text.split('\n').at(-1))).toEqual(['(1/3)', '(2/3)', '(3/3)']);
    expect(shown()[2]!.document).toEqual({ name: 'message.txt', content: LONG });
    expect(files()[0]).toMatchObject({ chat_id: CHAT, caption: 'message.txt\n(3/3)' });
  });

  it.each([
    [413, 'Request Entity Too Large'],
    [400, 'Bad Request: not enough rights to send documents to the chat'],
    [400, 'Bad Request: file is too big'],
  ])('a document that is refused (%d %s) is replaced by words that say where the text is', async (status, why) => {
    await quiet();
    const file = parts(LONG, 'k7q2').at(-1)!;
    rig.fake.script('sendDocument', refuse(status, why));
    expect(await say(rig.channel, file)).toMatchObject({ outcome: 'sent' });
    expect(rig.fake.botTexts(CHAT)).toEqual([expect.stringMatching(/could not be sent; \/logs k7q2/)]);
    expect(rig.logText()).toContain('telegram.file_refused');
  });

  it('a person who has blocked the bot stays unreachable', async () => {
    await quiet();
    rig.fake.chats.of(CHAT).blocked = 'bot was blocked by the user';
    expect(await say(rig.channel, parts(LONG).at(-1)!)).toMatchObject({ outcome: 'permanent', unreachable: true });
  });

  it('a document that Telegram is too busy for is tried again, one whose answer got lost is unknown', async () => {
    await quiet();
    const file = parts(LONG).at(-1)!;
    rig.fake.script('sendDocument', busy(7), dropAfter());
    expect(await say(rig.channel, file)).toMatchObject({ outcome: 'retry', scope: 'chat', afterMs: 7_000 });
    expect(await say(rig.channel, file)).toMatchObject({ outcome: 'unknown', safe: false });
    expect(texts()).toEqual([]);
  });

  it('a document follows a group to where it has become a supergroup, and leaves a topic that is gone', async () => {
    await quiet();
    rig.fake.chats.of(-4455).migratedTo = -1_001_234_567_890;
    const route = { chat: '-4455', chatKind: 'group' } as const;
    expect(await say(rig.channel, parts(LONG).at(-1)!, route)).toMatchObject({ outcome: 'sent' });
    expect(rig.fake.history(-1_001_234_567_890)[0]!.document).toMatchObject({ content: LONG });
  });

  it('code around a number is what Telegram shows as code', async () => {
    await quiet();
    const [part] = rig.channel.split(rich`${code('/retry k7q2')}\n${pre('a\n  b')}`);
    await say(rig.channel, part!);
    expect(texts()[0]!.entities).toEqual([
      { type: 'code', offset: 0, length: 11 },
      { type: 'pre', offset: 12, length: 5 },
    ]);
  });
});
