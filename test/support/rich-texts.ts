import fc from 'fast-check';
import type { Mark } from '../../src/channels/channel.ts';

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
    '\u202E',
    'שלום',
    '`',
    '**',
  ),
  fc.constantFrom(' '.repeat(50), 'x'.repeat(90), '\u200B'.repeat(40)),
);

/** Lone surrogates, control characters, joined emoji, right to left, blanks, long words. */
export const anyText = fc.array(piece, { maxLength: 60 }).map((pieces) => pieces.join(''));

const place = fc.integer({ min: -5, max: 2_000 });

/** Nested, overlapping, empty, outside of any text, and with everything that a mark can hold. */
export const anyMarks: fc.Arbitrary<Mark[]> = fc.array(
  fc.record(
    {
      kind: fc.constantFrom('bold', 'italic', 'code', 'pre', 'link', 'quote'),
      start: place,
      length: place,
      language: fc.constantFrom('js', 'c++', 'a b', ''),
      url: fc.constantFrom('https://x.test/a_b', 'mailto:a@b.test', 'javascript:alert(1)', ''),
    },
    { requiredKeys: ['kind', 'start', 'length'] },
  ),
  { maxLength: 30 },
);
