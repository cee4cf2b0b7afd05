import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalJson, idCodec, randomCode, randomToken, sameSecret, sha256 } from '../../src/ids.ts';

const codec = idCodec(Buffer.from('000102030405060708090a0b0c0d0e0f', 'hex'));
const LIMIT = 32 ** 10;
const anyId = fc.oneof(
  fc.integer({ min: 1, max: 5_000_000 }),
  fc.integer({ min: 1, max: LIMIT - 1 }),
  fc.integer({ min: 4, max: 9 }).chain((n) => fc.integer({ min: 32 ** n - 50, max: 32 ** n + 50 })),
);

describe('ids', () => {
  it('come back from their text, whatever the key', () => {
    fc.assert(
      fc.property(anyId, fc.uint8Array({ minLength: 1, maxLength: 32 }), (id, key) => {
        const some = idCodec(Buffer.from(key));
        const text = some.encode(id);
        expect(text).toMatch(/^[0-9abcdefghjkmnpqrstvwxyz]{4,10}$/);
        expect(some.decode(text)).toBe(id);
      }),
      { numRuns: 2_000 },
    );
  });

  it('the first 200,000 have each a text of their own', () => {
    const texts = new Set<string>();
    for (let id = 1; id <= 200_000; id += 1) texts.add(codec.encode(id));
    expect(texts.size).toBe(200_000);
  });

  it('are short as long as they can be: four characters up to 32^4, then one more each time', () => {
    for (const chars of [4, 5, 6, 7, 8, 9]) {
      expect(codec.encode(32 ** chars - 1)).toHaveLength(chars);
      expect(codec.encode(32 ** chars)).toHaveLength(chars + 1);
    }
    expect(codec.encode(1)).toHaveLength(4);
    expect(codec.encode(LIMIT - 1)).toHaveLength(10);
    expect(() => codec.encode(LIMIT)).toThrow(RangeError);
  });

  it('texts around a change of length name different things', () => {
    const texts = new Set<string>();
    for (const chars of [4, 5, 6]) for (let d = -500; d < 500; d += 1) texts.add(codec.encode(32 ** chars + d));
    expect(texts.size).toBe(3_000);
  });

  it('do not show their order', () => {
    const texts = Array.from({ length: 1_000 }, (_, n) => codec.encode(n + 1));
    const rises = texts.slice(1).filter((text, n) => text > texts[n]!).length;
    expect(rises).toBeGreaterThan(400);
    expect(rises).toBeLessThan(600);
    const firsts = new Set(texts.map((text) => text[0]));
    expect(firsts.size).toBe(32);
  });

  it('are read as people type them: upper case, and o, i, l for 0 and 1', () => {
    fc.assert(
      fc.property(anyId, (id) => {
        const text = codec.encode(id);
        const typed = text.replaceAll('0', 'O').replaceAll('1', 'l').toUpperCase().replaceAll('L', 'i');
        expect(codec.decode(typed)).toBe(id);
        expect(codec.decode(text.toUpperCase())).toBe(id);
      }),
    );
  });

  it('a text is at most one id, and any other text is none', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string({ maxLength: 12 }),
          fc.string({ unit: fc.constantFrom(...'0123456789abcdefghjkmnpqrstvwxyz'), minLength: 3, maxLength: 11 }),
        ),
        (text) => {
          const id = codec.decode(text);
          if (id === undefined) return;
          expect(Number.isSafeInteger(id) && id > 0).toBe(true);
          expect(codec.encode(id)).toBe(text.toLowerCase().replaceAll('o', '0').replaceAll(/[il]/g, '1'));
        },
      ),
      { numRuns: 3_000 },
    );
    for (const text of ['', 'abc', 'abcd-', 'abcu', 'a b c', '12345678901', '../etc', '__proto__'])
      expect(codec.decode(text)).toBeUndefined();
  });

  it('differ between keys', () => {
    const other = idCodec(randomBytes(16));
    const same = Array.from({ length: 1_000 }, (_, n) => n + 1).filter((id) => other.encode(id) === codec.encode(id));
    expect(same.length).toBeLessThan(10);
  });
});

describe('secrets', () => {
  it('are random, and safe to put into a URL or to read aloud', () => {
    const tokens = new Set(Array.from({ length: 1_000 }, () => randomToken()));
    expect(tokens.size).toBe(1_000);
    for (const token of tokens) expect(token).toMatch(/^[\w-]{32}$/);
    expect(randomToken(9)).toHaveLength(12);
    const codes = new Set(Array.from({ length: 1_000 }, () => randomCode(8)));
    expect(codes.size).toBe(1_000);
    for (const code of codes) expect(code).toMatch(/^[0-9A-HJKMNP-TV-Z]{8}$/);
  });

  it('are the same only when they are', () => {
    fc.assert(fc.property(fc.string(), fc.string(), (a, b) => void expect(sameSecret(a, b)).toBe(a === b)));
    expect([sameSecret('', ''), sameSecret('a', 'a'), sameSecret('a', 'a '), sameSecret('', 'a')]).toEqual([
      true,
      true,
      false,
      false,
    ]);
    expect(sha256('abc')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
  });
});

describe('canonical JSON', () => {
  const shuffled = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(shuffled);
    if (value === null || typeof value !== 'object') return value;
    return Object.fromEntries(
      Object.entries(value)
        .reverse()
        .map(([key, inner]) => [key, shuffled(inner)]),
    );
  };

  it('is the same for the same content in any order of keys, and still that content', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(canonicalJson(shuffled(value))).toBe(canonicalJson(value));
        expect(JSON.parse(canonicalJson(value))).toEqual(JSON.parse(JSON.stringify(value)));
      }),
    );
  });

  it('differs where the content does', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (a, b) => {
        const same = JSON.stringify(shuffled(shuffled(a))) === JSON.stringify(shuffled(shuffled(b)));
        if (same) expect(canonicalJson(a)).toBe(canonicalJson(b));
        if (canonicalJson(a) === canonicalJson(b))
          expect(JSON.parse(JSON.stringify(a))).toEqual(JSON.parse(JSON.stringify(b)));
      }),
    );
    expect(canonicalJson({ b: [2, 1], a: { d: 1, c: 2 } })).toBe('{"a":{"c":2,"d":1},"b":[2,1]}');
    expect(canonicalJson([1, 2])).not.toBe(canonicalJson([2, 1]));
  });
});
