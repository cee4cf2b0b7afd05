import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { duration, headAndTail, oneLine, printable, shortened } from '../src/text.ts';

describe('durations', () => {
  it.each([
    [0, 'under 1 s', '不到 1 秒'],
    [999, 'under 1 s', '不到 1 秒'],
    [3_000, '3 s', '3 秒'],
    [59_999, '59 s', '59 秒'],
    [60_000, '1 min', '1 分'],
    [125_000, '2 min 5 s', '2 分 5 秒'],
    [3_600_000, '1 h', '1 小时'],
    [3_840_000, '1 h 4 min', '1 小时 4 分'],
    [183_600_000, '2 d 3 h', '2 天 3 小时'],
  ])('%i ms are said as "%s" and "%s"', (ms, en, zh) => {
    expect(duration('en', ms)).toBe(en);
    expect(duration('zh', ms)).toBe(zh);
  });
});

describe('long texts', () => {
  it('keep their head and their tail, and the count of what is missing adds up', () => {
    const text = `${'a'.repeat(5_000)}${'b'.repeat(5_000)}`;
    const shown = headAndTail(text, 1_000, (count) => `<${count}>`);
    const [, head, count, tail] = /^(a+)\n<(\d+)>\n(b+)$/.exec(shown)!;
    expect(head!.length + Number(count) + tail!.length).toBe(text.length);
    expect(head!.length + tail!.length).toBe(1_000);
  });

  it('are never cut inside a character', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 300 }), fc.integer({ min: 2, max: 100 }), (text, max) => {
        expect(headAndTail(text, max, () => '').isWellFormed()).toBe(true);
        expect(shortened(text, max).isWellFormed()).toBe(true);
        expect(shortened(text, max).length).toBeLessThanOrEqual(max);
      }),
    );
  });

  it('lose terminal colours, control characters and direction marks', () => {
    expect(printable('\u001b[31mred\u001b[0m\r\nnext\u0007 \u202Eevil\ttab')).toBe('red\nnext evil\ttab');
  });

  it('become one line where one line is wanted', () => {
    expect(oneLine('  a\n\tb  c ', 10)).toBe('a b c');
  });
});
