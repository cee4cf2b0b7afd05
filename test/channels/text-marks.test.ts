import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Mark, Part } from '../../src/channels/channel.ts';
import { cleanText, type SplitOptions, sizeOf, split } from '../../src/channels/text.ts';
import { readMarkdown } from '../../src/markdown.ts';
import { joined, pre, rich, soundMarks } from '../../src/rich-text.ts';
import { anyMarks, anyText } from '../support/rich-texts.ts';

const TELEGRAM: SplitOptions = { max: 4_096, measure: 'utf16', mostParts: 4 };
const WECOM: SplitOptions = { max: 2_048, measure: 'utf8', mostParts: 3 };
const body = ({ text }: Part) => text.replace(/\n\(\d+\/\d+\)$/, '');
const looks = ({ text, marks = [] }: Part) =>
  marks.map(({ kind, start, length }: Mark) => `${kind}:${text.slice(start, start + length)}`);
const ink = (text: string) => text.replace(/[\s\u200B-\u200F\u2060\uFEFF]+/g, '');

/** What both platforms demand of a part, counted without the code under test. */
function expectAcceptable(part: Part, { max, measure }: SplitOptions): void {
  const size = measure === 'utf16' ? part.text.length : new TextEncoder().encode(part.text).length;
  expect(size).toBeLessThanOrEqual(max);
  expect(part.text.isWellFormed()).toBe(true);
  expect(part.text.trim()).not.toBe('');
  for (const { start, length } of part.marks ?? []) {
    const marked = part.text.slice(start, start + length);
    expect(marked).toHaveLength(length);
    expect(marked.isWellFormed() && marked.trim() !== '').toBe(true);
  }
}

const options = fc.record({
  max: fc.integer({ min: 128, max: 300 }),
  measure: fc.constantFrom('utf16' as const, 'utf8' as const),
  mostParts: fc.constantFrom(undefined, 2, 4),
});

describe('a text with looks', () => {
  it('any of them is cut into acceptable parts that lose nothing but blanks at cuts', () => {
    fc.assert(
      fc.property(anyText, anyMarks, options, (text, marks, { mostParts, ...limits }) => {
        const parts = split(
          { text, marks, taskId: 'k7q2' },
          mostParts === undefined ? limits : { ...limits, mostParts },
        );
        for (const part of parts) expectAcceptable(part, limits);
        const file = parts.find((part) => part.file)?.file;
        const kept = file ? file.text : parts.map((part) => (parts.length > 1 ? body(part) : part.text)).join('');
        if (ink(cleanText(text)) !== '') expect(ink(kept)).toBe(ink(cleanText(text)));
        if (mostParts !== undefined) expect(parts.length).toBeLessThanOrEqual(Math.max(mostParts, 3));
      }),
      { numRuns: 500 },
    );
  });

  it('looks are those of the whole, cut with the text', () => {
    fc.assert(
      fc.property(anyText, anyMarks, options, (text, marks, { max, measure }) => {
        const clean = cleanText(text);
        const whole = soundMarks(clean, marks);
        // Without control characters, marks stay where they are given.
        if (clean !== text) return;
        const letters = (kind: string, of: readonly Part[]) =>
          ink(
            of
              .flatMap((part) =>
                looks(part)
                  .filter((look) => look.startsWith(kind))
                  .map((look) => look.slice(kind.length)),
              )
              .join(''),
          );
        const parts = split({ text, marks }, { max, measure });
        for (const kind of ['bold:', 'pre:', 'quote:'])
          expect(letters(kind, parts)).toBe(letters(kind, [{ text: clean, marks: whole }]));
      }),
      { numRuns: 300 },
    );
  });

  it('is cut the same way each time, so that a message can be resumed at the part that failed', () => {
    fc.assert(
      fc.property(anyText, anyMarks, (text, marks) => {
        const limits = { max: 128, measure: 'utf16', mostParts: 3 } as const;
        expect(split({ text, marks }, limits)).toEqual(split({ text, marks }, limits));
      }),
      { numRuns: 50 },
    );
  });

  it('case 18: code goes on as code in the next part, with its language', () => {
    const source = readMarkdown(`Look:\n\`\`\`js\n${'const a_b = c * d;\n'.repeat(400)}\`\`\`\ndone`);
    const parts = split(source, TELEGRAM);
    expect(parts).toHaveLength(2);
    for (const part of parts) expect(part.marks).toMatchObject([{ kind: 'pre', language: 'js' }]);
    expect(looks(parts[1]!)[0]).toMatch(/^pre:const a_b/);
    // The number of the part is none of the code.
    for (const part of parts) expect(looks(part)[0]).not.toMatch(/\(\d\/\d\)/);
  });

  it('a look of which only blanks come into a part is none there', () => {
    const marks: Mark[] = [{ kind: 'bold', start: 0, length: 44 }];
    const parts = split({ text: `${'a'.repeat(38)}\n    ${'b'.repeat(30)}`, marks }, { max: 46, measure: 'utf16' });
    expect(parts.map((part) => part.marks)).toEqual([
      [{ kind: 'bold', start: 0, length: 38 }],
      [{ kind: 'bold', start: 0, length: 5 }],
    ]);
    const [, second] = split(
      { text: `${'a'.repeat(38)}\n    ${'b'.repeat(30)}`, marks: [{ kind: 'bold', start: 0, length: 43 }] },
      { max: 46, measure: 'utf16' },
    );
    expect(second).not.toHaveProperty('marks');
  });

  it('case 20: 5,000 emoji are counted as Telegram counts them', () => {
    const parts = split({ text: '😀'.repeat(5_000) }, TELEGRAM);
    for (const part of parts) expect(part.text.length).toBeLessThanOrEqual(4_096);
    expect(parts.map(body).join('')).toBe('😀'.repeat(5_000));
  });

  it('case 21: signs of markup cost nothing: 4,096 of them are one part', () => {
    expect(split({ text: '!'.repeat(4_096) }, TELEGRAM)).toEqual([{ text: '!'.repeat(4_096) }]);
  });

  it('case 22: no cut goes through a surrogate pair or a family', () => {
    const parts = split({ text: `a${'🙂'.repeat(4_096)}` }, TELEGRAM);
    for (const part of parts) expect(part.text.isWellFormed()).toBe(true);
    const family = '👩‍👩‍👧';
    for (const part of split({ text: `a${family.repeat(1_000)}` }, TELEGRAM).map(body))
      expect(part.replace(/^a/, '').replaceAll(family, '')).toBe('');
  });

  it('case 23: there is no escape to cut: entities of HTML are text', () => {
    const parts = split({ text: '&amp;'.repeat(1_500) }, TELEGRAM);
    expect(parts.map(body).join('')).toBe('&amp;'.repeat(1_500));
  });

  it('case 25: 12,000 characters with a fence of 9,000 are parts; what is longer is head, tail and a file', () => {
    const fence = `\`\`\`sh\n${'echo "line"\n'.repeat(820)}\`\`\``;
    const parts = split(
      readMarkdown(`${'Words before. '.repeat(110)}\n${fence}\n${'Words after. '.repeat(110)}`),
      TELEGRAM,
    );
    expect(parts.length).toBeLessThanOrEqual(4);
    expect(parts.some((part) => part.file)).toBe(false);
    for (const part of parts) expectAcceptable(part, TELEGRAM);

    const long = Array.from({ length: 5_000 }, (_, n) => `line ${n}`).join('\n');
    const [head, tail, file, ...more] = split(joined([pre(long)], ''), TELEGRAM);
    expect(more).toEqual([]);
    expect(head!.text).toMatch(/^line 0\n[\s\S]*\n\(1\/3\)$/);
    expect(tail!.text).toMatch(/^\[…\]\nline \d+\n[\s\S]*line 4999\n\(2\/3\)$/);
    expect(looks(tail!)[0]).toMatch(/^pre:line/);
    expect(file).toMatchObject({ text: 'message.txt\n(3/3)', file: { name: 'message.txt', text: long } });
  });

  it('case 63: WeCom is counted in bytes, of the tail too', () => {
    expect(split({ text: '汉'.repeat(700) }, WECOM).map((part) => sizeOf(part.text, 'utf8'))).toEqual([2_046, 66]);
    for (const part of split({ text: '汉字。'.repeat(3_000) }, WECOM)) expectAcceptable(part, WECOM);
    const rows = Array.from({ length: 300 }, (_, n) => `| 房间 ${n} | 张三 |`);
    const shown = split({ text: rows.join('\n') }, WECOM)
      .slice(0, 2)
      .flatMap((part) => body(part).split('\n'));
    for (const row of shown.filter((line) => line !== '[…]')) expect(rows).toContain(row);
  });

  it('A15: the text that breaks markup is sent as it is', () => {
    const text = 'a_b *c [x](y`<b>&amp; </code> \\';
    expect(split({ text }, TELEGRAM)).toEqual([{ text }]);
    const block = split(rich`${pre('x = 1\n'.repeat(1_000))}`, TELEGRAM);
    expect(block).toHaveLength(2);
    for (const part of block) expect(part.marks).toMatchObject([{ kind: 'pre', start: 0 }]);
  });

  it('100,000 characters with a thousand looks are cut quickly', () => {
    const marks = Array.from({ length: 5_000 }, (_, n): Mark => ({ kind: 'bold', start: n * 20, length: 10 }));
    const startedAt = performance.now();
    split({ text: 'lorem ipsum '.repeat(9_000), marks }, { max: 128, measure: 'utf8' });
    expect(performance.now() - startedAt).toBeLessThan(10_000);
  });
});
