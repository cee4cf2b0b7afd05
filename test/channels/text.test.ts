import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { cleanText, type SplitOptions, sizeOf, split } from '../../src/channels/text.ts';

const splitText = (text: string, options: SplitOptions) => split({ text }, options).map((part) => part.text);
const graphemes = (text: string) =>
  [...new Intl.Segmenter(undefined, { granularity: 'grapheme' }).segment(text)].map((s) => s.segment);
const withoutMark = (part: string) => part.replace(/\n\(\d+\/\d+\)$/, '');
const bodies = (parts: string[]) => (parts.length === 1 ? parts : parts.map(withoutMark));
const ink = (text: string) => text.replace(/\s+/g, '');

const options = fc.record({
  max: fc.integer({ min: 32, max: 200 }),
  measure: fc.constantFrom('utf16' as const, 'utf8' as const),
});
const piece = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 40 }),
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.constantFrom(
    '汉字。',
    'word ',
    '\n',
    '\n\n',
    '👩‍👩‍👧',
    '🇨🇳🇩🇪',
    'é́́',
    '\uD83D',
    '\uDE00',
    '\u0000',
    '\r\n',
    ' '.repeat(50),
    'x'.repeat(90),
  ),
);
const anyText = fc.array(piece, { maxLength: 60 }).map((pieces) => pieces.join(''));

describe('splitText', () => {
  it('every part is within the limit, well formed and not blank, for any text', () => {
    fc.assert(
      fc.property(anyText, options, (text, limits) => {
        const parts = splitText(text, limits);
        expect(parts.length).toBeGreaterThan(0);
        for (const part of parts) {
          expect(sizeOf(part, limits.measure)).toBeLessThanOrEqual(limits.max);
          expect(part).not.toMatch(/\p{Cs}|[\u0000-\u0008\u000B-\u001F\u007F-\u009F]/u);
          expect(part.trim()).not.toBe('');
        }
      }),
      { numRuns: 500 },
    );
  });

  it('everything but blanks is kept, in order, for any text', () => {
    fc.assert(
      fc.property(anyText, options, (text, limits) => {
        const kept = ink(bodies(splitText(text, limits)).join(''));
        const invisible = /[\u200B-\u200F\u2060\uFEFF]/g;
        const expected = ink(cleanText(text));
        // A text, or a stretch as long as a part, of invisible characters only has nothing to show.
        if (expected.replace(invisible, '') === '') expect(kept).toBe('…');
        else expect(kept.replace(invisible, '')).toBe(expected.replace(invisible, ''));
      }),
      { numRuns: 500 },
    );
  });

  it('words that fit into a part are never cut', () => {
    const word = fc.oneof(
      fc.string({ unit: fc.constantFrom('a', 'b', '7', '-'), minLength: 1, maxLength: 20 }),
      fc.string({ unit: fc.constantFrom('é', 'ж'), minLength: 1, maxLength: 10 }),
    );
    const words = fc.array(word, { minLength: 1, maxLength: 150 });
    const gaps = fc.array(fc.constantFrom(' ', '\n', '\n\n', '  '), { minLength: 150, maxLength: 150 });
    fc.assert(
      fc.property(words, gaps, options, (list, between, limits) => {
        const text = list
          .map((word, n) => word + between[n])
          .join('')
          .trim();
        const got = bodies(splitText(text, limits))
          .flatMap((body) => body.split(/\s+/))
          .filter((word) => word !== '');
        expect(got).toEqual(list);
      }),
    );
  });

  it('no grapheme is cut', () => {
    const unit = fc.constantFrom('👩‍👩‍👧', '🇨🇳', '🇩🇪', 'e\u0301', '1️⃣', 'a', '汉', '👍🏽', 'क्षि', ' ');
    fc.assert(
      fc.property(fc.array(unit, { minLength: 20, maxLength: 200 }), options, (units, limits) => {
        // The text's own graphemes: neighbouring flags pair up as the text, not the list, has them.
        const whole = graphemes(units.join('')).filter((g) => g.trim() !== '');
        const got = bodies(splitText(units.join(''), limits))
          .flatMap(graphemes)
          .filter((g) => g.trim() !== '');
        expect(got).toEqual(whole);
      }),
      { numRuns: 300 },
    );
  });

  const telegram: SplitOptions = { max: 4096, measure: 'utf16' };

  it('a text that fits is left alone, without a mark', () => {
    expect(splitText('hello\n\tworld', telegram)).toEqual(['hello\n\tworld']);
    expect(splitText('x'.repeat(4096), telegram)).toEqual(['x'.repeat(4096)]);
  });

  it('one unit too many makes two numbered parts', () => {
    const parts = splitText('x'.repeat(4097), telegram);
    expect(parts).toHaveLength(2);
    expect(parts.map((part) => part.slice(-6))).toEqual(['\n(1/2)', '\n(2/2)']);
    expect(parts[0]).toHaveLength(4096);
  });

  it('the limit of WeCom counts bytes: 700 Chinese characters are two parts', () => {
    const parts = splitText('汉'.repeat(700), { max: 2048, measure: 'utf8' });
    expect(parts.map((part) => Buffer.byteLength(part))).toEqual([680 * 3 + 6, 20 * 3 + 6]);
  });

  it('a paragraph end is preferred to a line end, a line end to a blank', () => {
    const max = 50;
    const at = (text: string) => withoutMark(splitText(text, { max, measure: 'utf16' })[0]!);
    const tail = `${'t'.repeat(4)} `.repeat(20);
    expect(at(`${'a'.repeat(25)}\n\nbbb\nccc ddd ${tail}`)).toBe('a'.repeat(25));
    expect(at(`${'a'.repeat(25)}\nbbb ccc ddd ${tail}`)).toBe('a'.repeat(25));
    expect(at(`${'a'.repeat(25)} bbb ${'c'.repeat(40)}`)).toBe(`${'a'.repeat(25)} bbb`);
    expect(at(`${'汉'.repeat(30)}。${'字'.repeat(40)}`)).toBe(`${'汉'.repeat(30)}。`);
  });

  it('the indentation of the line after a cut stays', () => {
    const parts = splitText(`${'a'.repeat(30)}\n    return 1;\n${'b'.repeat(30)}`, { max: 40, measure: 'utf16' });
    expect(parts[1]).toMatch(/^ {4}return 1;/);
  });

  it('a text with nothing to show becomes one mark', () => {
    for (const text of ['', ' \n ', '\u0000\u0007', '\u200B\uFEFF']) expect(splitText(text, telegram)).toEqual(['…']);
  });

  it('a grapheme longer than a part is cut between code points', () => {
    for (const grapheme of [`e${'\u0301'.repeat(300)}`, `👩${'\u200D👩'.repeat(100)}`]) {
      for (let max = 32; max < 64; max += 1) {
        for (const measure of ['utf16', 'utf8'] as const) {
          const parts = bodies(splitText(grapheme, { max, measure }));
          expect(parts.join('')).toBe(grapheme);
          expect(parts.join('|')).not.toMatch(/\p{Cs}/u);
        }
      }
    }
  });

  it('a limit too small for text and mark is a mistake of the caller', () => {
    expect(() => splitText('x', { max: 31, measure: 'utf8' })).toThrow(RangeError);
  });

  it.each([
    ['words', 'lorem ipsum '.repeat(90_000)],
    ['one long word', 'x'.repeat(1_000_000)],
    ['emoji only', '👩‍👩‍👧'.repeat(125_000)],
    ['blanks only, with a word at the end', `${' '.repeat(1_000_000)}x`],
    ['a thousand combining marks on every letter', `e${'\u0301'.repeat(1000)}`.repeat(1000)],
  ])('a megabyte is quick to cut: %s', (_name, text) => {
    // Far above what it takes, far below what a quadratic cut would.
    const startedAt = performance.now();
    for (const measure of ['utf16', 'utf8'] as const) splitText(text, { max: 2048, measure });
    expect(performance.now() - startedAt).toBeLessThan(15_000);
  });
});
