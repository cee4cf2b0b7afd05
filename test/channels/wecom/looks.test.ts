import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { wecomMarkdown } from '../../../src/channels/wecom/markdown.ts';
import { readMarkdown } from '../../../src/markdown.ts';
import { bold, code, pre, rich } from '../../../src/rich-text.ts';
import { anyMarks, anyText } from '../../support/rich-texts.ts';
import { outgoing, startRig, USER, type WecomRig } from './rig.ts';

let rig: WecomRig;
afterEach(() => rig.stop());
const bodies = () =>
  rig.fake.calls.flatMap(({ path, body }) => (path === '/cgi-bin/message/send' && body ? [body] : []));
const LONG = Array.from({ length: 1_500 }, (_, n) => `第 ${n} 行`).join('\n');
const lastPart = () => rig.channel.split({ text: LONG, taskId: 'k7q2' }).at(-1)!;

describe('looks', () => {
  it('are WeCom’s Markdown; the person reads the same words', async () => {
    rig = await startRig();
    await rig.send(rich`✅ ${bold('问候')} 已完成，用时 3 秒\n${code('/retry k7q2')}`);
    expect(bodies()[0]).toMatchObject({
      msgtype: 'markdown',
      markdown: { content: '✅ **问候** 已完成，用时 3 秒\n`/retry k7q2`' },
    });
    expect(rig.fake.history(USER)).toEqual(['✅ 问候 已完成，用时 3 秒\n/retry k7q2']);
  });

  it('are left out where the setting says so', async () => {
    rig = await startRig({ channel: { markdown: 'off' } });
    await rig.send(rich`${bold('问候')} 已完成`);
    expect(bodies()[0]).toMatchObject({ msgtype: 'text', text: { content: '问候 已完成' } });
  });

  it.each([
    'build_1_2',
    'a*b',
    '5 > 3',
    '# 1',
    '1. x',
    '- x',
    '`',
    '[x](y)',
    '<font color="info">x</font>',
    'a\\b',
    '| a | b |',
  ])('a text that WeCom could take for Markdown is sent as it is: %s', async (text) => {
    rig = await startRig();
    await rig.send(rich`${bold('Title')}\n${text}`);
    expect(bodies()[0]).toMatchObject({ msgtype: 'text', text: { content: `Title\n${text}` } });
  });

  it('what a program has printed in columns is text', () => {
    expect(wecomMarkdown(rich`${bold('Title')}\n${pre('a\n  b')}`)).toBeUndefined();
    expect(wecomMarkdown(readMarkdown('*only italic*'))).toBeUndefined();
    expect(wecomMarkdown({ text: 'plain' })).toBeUndefined();
  });

  it('that would make a part too long are left out', async () => {
    rig = await startRig();
    const full = 'a'.repeat(2_044);
    expect(await rig.send(rich`${bold(full)}`)).toMatchObject({ outcome: 'sent' });
    expect(await rig.send(rich`${bold(`${full}b`)}`)).toMatchObject({ outcome: 'sent' });
    expect(bodies().map(({ msgtype }) => msgtype)).toEqual(['markdown', 'text']);
    expect(rig.fake.violations).toEqual([]);
  });

  it('case 63: any text with any looks is taken by WeCom, and nothing is cut', async () => {
    rig = await startRig();
    await fc.assert(
      fc.asyncProperty(anyText, anyMarks, async (text, marks) => {
        for (const part of rig.channel.split({ text: text.repeat(3), marks })) {
          rig.clock.advance(61_000);
          expect(await rig.send(part)).toMatchObject({ outcome: 'sent' });
        }
      }),
      { numRuns: 60 },
    );
    expect(rig.fake.violations).toEqual([]);
  });
});

describe('what is too long for three parts', () => {
  it('case 63: arrives as head, tail and a file with all of it', async () => {
    rig = await startRig();
    for (const part of rig.channel.split({ text: LONG }))
      expect(await rig.send(part)).toMatchObject({ outcome: 'sent' });
    expect(rig.fake.history(USER)).toEqual([
      expect.stringMatching(/^第 0 行\n[\s\S]*\(1\/3\)$/),
      expect.stringMatching(/第 1499 行\n\(2\/3\)$/),
      LONG,
    ]);
    expect(rig.fake.violations).toEqual([]);
  });

  it('a repeat names the same file, also after a restart, so that WeCom drops it', async () => {
    rig = await startRig();
    const message = outgoing(lastPart());
    rig.fake.script('message/send', 'drop after accepting');
    expect(await rig.channel.send(message, AbortSignal.timeout(30_000))).toMatchObject({
      outcome: 'unknown',
      safe: true,
    });
    const restarted = rig.again();
    expect(await restarted.send(message, AbortSignal.timeout(30_000))).toMatchObject({ outcome: 'sent' });
    await restarted.stop();
    expect(rig.fake.count('media/upload')).toBe(1);
    expect(rig.fake.history(USER)).toEqual([LONG]);
  });

  it('a file that WeCom has dropped meanwhile is uploaded again', async () => {
    rig = await startRig();
    const message = outgoing(lastPart());
    rig.fake.script('message/send', 'drop before accepting');
    await rig.channel.send(message, AbortSignal.timeout(30_000));
    rig.fake.dropMedia();
    expect(await rig.channel.send(message, AbortSignal.timeout(30_000))).toMatchObject({ outcome: 'retry' });
    expect(await rig.channel.send(message, AbortSignal.timeout(30_000))).toMatchObject({ outcome: 'sent' });
    expect(rig.fake.history(USER)).toEqual([LONG]);
  });

  it('an upload that got no answer is done again: nobody has seen it', async () => {
    rig = await startRig();
    rig.fake.script('media/upload', 'drop after accepting');
    const message = outgoing(lastPart());
    expect(await rig.channel.send(message, AbortSignal.timeout(30_000))).toMatchObject({ outcome: 'retry' });
    expect(await rig.channel.send(message, AbortSignal.timeout(30_000))).toMatchObject({ outcome: 'sent' });
    expect(rig.fake.history(USER)).toEqual([LONG]);
  });

  it('a token that was withdrawn is replaced for the upload, too', async () => {
    rig = await startRig();
    await rig.send('hello');
    rig.fake.withdrawToken();
    expect(await rig.send(lastPart())).toMatchObject({ outcome: 'sent' });
  });

  it('a file that WeCom never takes is replaced by words that say where the text is', async () => {
    rig = await startRig();
    rig.fake.script('media/upload', { errcode: 40058 });
    expect(await rig.send(lastPart())).toMatchObject({ outcome: 'sent' });
    expect(rig.fake.history(USER)).toEqual([expect.stringContaining('/logs k7q2')]);
  });
});
