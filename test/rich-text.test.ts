import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Mark } from '../src/channels/channel.ts';
import {
  bold,
  code,
  isSafeUrl,
  joined,
  pre,
  rich,
  richHeadAndTail,
  sliceOf,
  soundMarks,
  withoutUnits,
} from '../src/rich-text.ts';
import { headAndTail } from '../src/text.ts';
import { anyMarks, anyText } from './support/rich-texts.ts';

/** What each mark stands around. */
const looks = ({ text, marks = [] }: { text: string; marks?: readonly Mark[] }) =>
  marks.map(({ kind, start, length }) => `${kind}:${text.slice(start, start + length)}`);

describe('wording', () => {
  it('places the marks of its values', () => {
    const said = rich`✅ ${bold('Hello')} — ${code('k7q2')}, ${3} times`;
    expect(said.text).toBe('✅ Hello — k7q2, 3 times');
    expect(looks(said)).toEqual(['bold:Hello', 'code:k7q2']);
  });

  it('is plain where nothing has a look', () => {
    expect(rich`a ${'b'}`).toEqual({ text: 'a b' });
    expect(joined(['a', { text: 'b' }, bold('')], ' ')).toEqual({ text: 'a b ' });
  });

  it('keeps its looks when it is joined, cut and shortened', () => {
    const whole = joined([bold('title'), pre('one\ntwo')], '\n');
    expect(looks(whole)).toEqual(['bold:title', 'pre:one\ntwo']);
    expect(looks(sliceOf(whole, 2, 9))).toEqual(['bold:tle', 'pre:one']);
    const long = rich`${bold('head')} ${'x'.repeat(200)} ${code('tail')}`;
    const short = richHeadAndTail(long, 50, (count) => `… ${count}`);
    expect(short.text).toBe(headAndTail(long.text, 50, (count) => `… ${count}`));
    expect(looks(short)).toEqual(['bold:head', 'code:tail']);
  });

  it('looks move with their text when units are taken out', () => {
    const kept = withoutUnits(rich`${'\0a'}${bold('b\0c')}${'\0'}${code('d')}`, /\0/g);
    expect(kept.text).toBe('abcd');
    expect(looks(kept)).toEqual(['bold:bc', 'code:d']);
  });
});

describe('sound marks', () => {
  const sound = (text: string, ...marks: Mark[]) => looks({ text, marks: soundMarks(text, marks) });

  it('stay within the text and around whole characters', () => {
    expect(sound('a😀b', { kind: 'bold', start: 2, length: 50 })).toEqual(['bold:😀b']);
    expect(sound('a😀b', { kind: 'bold', start: 1, length: 1 })).toEqual(['bold:😀']);
    expect(sound('abc', { kind: 'bold', start: 9, length: 1 }, { kind: 'code', start: 1, length: -1 })).toEqual([]);
    expect(sound('abc', { kind: 'bold', start: Number.NaN, length: 1 })).toEqual([]);
  });

  it('nest or are apart; code holds nothing; none is inside of its own kind', () => {
    const [outer, over] = [
      { kind: 'bold', start: 0, length: 4 } as const,
      { kind: 'italic', start: 2, length: 4 } as const,
    ];
    expect(sound('abcdef', outer, over)).toEqual(['bold:abcd', 'italic:cd']);
    expect(sound('abcdef', { kind: 'pre', start: 0, length: 6 }, outer)).toEqual(['pre:abcdef']);
    expect(sound('abcdef', outer, { ...outer, length: 2 })).toEqual(['bold:abcd']);
    expect(sound('abcdef', { kind: 'quote', start: 0, length: 6 }, { kind: 'code', start: 1, length: 2 })).toEqual([
      'quote:abcdef',
      'code:bc',
    ]);
  });

  it('links lead to pages and addresses only', () => {
    for (const url of ['https://x.test/a?b=c', 'http://x.test', 'mailto:a@b.test']) expect(isSafeUrl(url)).toBe(true);
    for (const url of ['javascript:alert(1)', 'data:text/html,x', 'https://', 'https://a b', 'tg://x', '//x.test', ''])
      expect(isSafeUrl(url)).toBe(false);
    expect(sound('click', { kind: 'link', start: 0, length: 5, url: 'javascript:alert(1)' })).toEqual([]);
  });

  it('hold for any marks on any text', () => {
    fc.assert(
      fc.property(anyText, anyMarks, (text, marks) => {
        const kept = soundMarks(text.toWellFormed(), marks);
        for (const [index, mark] of kept.entries()) {
          const end = mark.start + mark.length;
          const shown = text.toWellFormed().slice(mark.start, end);
          expect(shown.isWellFormed()).toBe(true);
          expect(shown.trim()).not.toBe('');
          expect(end).toBeLessThanOrEqual(text.length);
          for (const later of kept.slice(index + 1)) {
            const isInside = later.start + later.length <= end;
            expect(later.start >= mark.start && (later.start >= end || isInside)).toBe(true);
            if (later.start < end) expect([later.kind, 'code', 'pre']).not.toContain(mark.kind);
          }
        }
        expect(soundMarks(text.toWellFormed(), kept)).toEqual(kept);
      }),
      { numRuns: 300 },
    );
  });
});
