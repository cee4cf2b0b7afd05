import { expect, test } from 'vitest';
import { displayWidth, localTime, oneLine, printable, table } from '../../src/cli/table.ts';

test('Chinese, full-width and emoji characters count two columns, accents none of their own', () => {
  expect(['abc', '你好', 'ｶﾅ', 'Ａ', '한국', '🎉', '👩‍💻', 'é', 'e\u0301', '✅', '→'].map(displayWidth)).toEqual([
    3, 4, 2, 2, 4, 2, 2, 1, 1, 2, 1,
  ]);
});

test('columns stay aligned under any text', () => {
  const lines = table(
    ['A', 'B'],
    [
      ['你好', 'x'],
      ['ab', 'y'],
      ['🎉', 'z'],
    ],
    'none',
  ).split('\n');
  expect(lines).toEqual(['A     B', '你好  x', 'ab    y', '🎉    z']);
});

test('no rows are a sentence', () => {
  expect(table(['A'], [], 'Nothing here.')).toBe('Nothing here.');
});

test('control characters and direction overrides are shown, not obeyed; lines and tabs stay', () => {
  expect(printable('a\u001b[31mb\rc\u009bd\u202ee\tf\ng\r\nh')).toBe('a·[31mb·c·d·e\tf\ng\nh');
});

test('a cell is one line and cut at whole characters', () => {
  expect(oneLine('one\ntwo   three', 80)).toBe('one two three');
  expect(oneLine('你好世界', 5)).toBe('你好…');
  expect(displayWidth(oneLine('👩‍💻'.repeat(10), 6))).toBeLessThanOrEqual(6);
});

test('times are local and short', () => {
  expect(localTime(new Date(2026, 4, 3, 9, 5, 7).getTime())).toBe('2026-05-03 09:05:07');
  expect(localTime(null)).toBe('');
});
