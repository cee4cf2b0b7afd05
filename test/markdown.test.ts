import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readMarkdown } from '../src/markdown.ts';
import { anyText } from './support/rich-texts.ts';

/** The text, and what each mark stands around. */
function read(source: string): [string, ...string[]] {
  const { text, marks = [] } = readMarkdown(source);
  return [text, ...marks.map(({ kind, start, length }) => `${kind}:${text.slice(start, start + length)}`)];
}

describe('Markdown', () => {
  it.each([
    ['**bold** and *it* and _it_', 'bold and it and it', 'bold:bold', 'italic:it', 'italic:it'],
    ['***both***', 'both', 'bold:both', 'italic:both'],
    ['**粗体**后面', '粗体后面', 'bold:粗体'],
    ['**bold _it_ bold**', 'bold it bold', 'bold:bold it bold', 'italic:it'],
    ['`a*b*` and ``a`b``', 'a*b* and a`b', 'code:a*b*', 'code:a`b'],
    ['# Title *x* ##', 'Title x', 'bold:Title x', 'italic:x'],
    ['## C#', 'C#', 'bold:C#'],
    ['> one\n> **two**\nthree', 'one\ntwo\nthree', 'quote:one\ntwo', 'bold:two'],
    ['- item\n1. `x`', '- item\n1. x', 'code:x'],
    ['[docs](https://x.test/a_b(c)) now', 'docs (https://x.test/a_b(c)) now', 'link:docs'],
    ['[https://x.test](https://x.test)', 'https://x.test', 'link:https://x.test'],
    ['![chart](https://x.test/i.png)', 'chart (https://x.test/i.png)', 'link:chart'],
    ['\\*no\\* \\`no\\`', '*no* `no`'],
  ])('%s', (source, ...expected) => {
    expect(read(source)).toEqual(expected);
  });

  it.each([
    'snake_case_name and 2 * 3 * 4',
    '**open and `open and [open',
    '[x](javascript:alert(1))',
    'https://x.test/a_b_c_d',
    'a ** b ** c',
    '<b>&amp;</b> ~~s~~ | a | b |',
    '#no heading',
    'a****b',
  ])('leaves as it is: %s', (source) => {
    expect(readMarkdown(source)).toEqual({ text: source });
  });

  it('case 18: a fence keeps what is in it, and its language', () => {
    const { text, marks } = readMarkdown('before\n```python\na_b*c*\n\n> x\n```\n**after**');
    expect(text).toBe('before\na_b*c*\n\n> x\nafter');
    expect(marks).toEqual([
      { kind: 'pre', start: 7, length: 11, language: 'python' },
      { kind: 'bold', start: 19, length: 5 },
    ]);
  });

  it('a fence that nobody closes ends with the text', () => {
    expect(read('~~~\na\n```\nb')).toEqual(['a\n```\nb', 'pre:a\n```\nb']);
  });

  it('any text is read, loses no letter and gets sound marks', () => {
    fc.assert(
      fc.property(anyText, (source) => {
        const { text, marks = [] } = readMarkdown(source);
        const letters = (of: string) => of.replace(/[^\p{L}\p{N}]/gu, '');
        expect(letters(text)).toBe(letters(source));
        for (const { start, length } of marks) expect(start + length).toBeLessThanOrEqual(text.length);
      }),
      { numRuns: 500 },
    );
  });

  it.each(['](', '**a', '*[', '``` `', '[a](https://b.c)'])('a megabyte is quick to read: %s', (piece) => {
    // Far above what it takes, far below what a quadratic reader would.
    const startedAt = performance.now();
    readMarkdown(piece.repeat(1_000_000 / piece.length));
    expect(performance.now() - startedAt).toBeLessThan(20_000);
  });
});
