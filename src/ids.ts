import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';

/**
 * Ids. Inside, every row of every table has one integer from one sequence; outside, that integer is shown as 4 to 6 (later more)
 * characters that look random and can be typed on a phone. The mapping is a keyed permutation, so it needs no column and no index,
 * is unique by construction, and one text names one thing across all tables. It hides order and volume; it is not a permission:
 * every use of an id is checked against its owner.
 */
export interface IdCodec {
  encode(id: number): string;
  /** The integer, or undefined where the text is no id of ours. Upper case and the look-alikes o, i, l are accepted. */
  decode(text: string): number | undefined;
}

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz'; // Crockford's base 32: no i, l, o, u
const VALUES = new Map([...ALPHABET].map((char, value) => [char, value]));
for (const [lookalike, char] of [
  ['o', '0'],
  ['i', '1'],
  ['l', '1'],
] as const)
  VALUES.set(lookalike, VALUES.get(char)!);
const MIN_CHARS = 4;
const MAX_CHARS = 10; // 50 bits: inside what a JavaScript number holds exactly
const ROUNDS = 4;
/** By number of characters: the two factors of 32^chars that the halves are counted in. */
const RADICES = Array.from({ length: MAX_CHARS + 1 }, (_, chars): [number, number] => [
  32 ** Math.floor(chars / 2),
  32 ** Math.ceil(chars / 2),
]);

/** @param key any bytes; stored with the database, so that ids keep their text for ever. */
export function idCodec(key: Buffer): IdCodec {
  const subkeys = Array.from({ length: ROUNDS }, (_, round) =>
    createHash('sha256')
      .update(key)
      .update(Buffer.from([round]))
      .digest()
      .readUInt32LE(0),
  );
  return {
    encode(id) {
      let chars = MIN_CHARS;
      while (id >= 32 ** chars) chars += 1;
      if (chars > MAX_CHARS) throw new RangeError(`id out of range: ${id}`);
      return toText(forward(id, chars, subkeys), chars);
    },
    decode(text) {
      const chars = text.length;
      if (chars < MIN_CHARS || chars > MAX_CHARS) return undefined;
      const value = fromText(text.toLowerCase());
      if (value === undefined) return undefined;
      const id = backward(value, chars, subkeys);
      const shortest = chars === MIN_CHARS || id >= 32 ** (chars - 1);
      return shortest && id > 0 ? id : undefined;
    },
  };
}

/** Random bytes that were fetched together, since each call of the source costs as much as several statements, and how many are used. */
const pool = { bytes: Buffer.alloc(0), used: 0 };
const POOL_BYTES = 4_096;

/** A random secret of `bytes` bytes as url-safe text. */
export function randomToken(bytes = 24): string {
  if (pool.used + bytes > pool.bytes.length) Object.assign(pool, { bytes: randomBytes(POOL_BYTES + bytes), used: 0 });
  const from = pool.used;
  pool.used += bytes;
  return pool.bytes.toString('base64url', from, pool.used);
}

/** A code a person can read aloud: `length` characters without look-alikes, from a secure source. */
export function randomCode(length: number): string {
  return [...randomBytes(length)]
    .map((byte) => ALPHABET[byte & 31])
    .join('')
    .toUpperCase();
}

/** What is stored of a secret. */
export function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Compares two texts in constant time, whatever their lengths. */
export function sameSecret(a: string, b: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}

/** Same value, same text: object keys sorted at every level, so that payloads compare by content. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) => {
    if (inner === null || typeof inner !== 'object' || Array.isArray(inner)) return inner;
    return Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)));
  });
}

/**
 * An alternating Feistel network over the mixed radix a*b = 32^chars is a permutation of all values of that length, also of
 * those that are shown shorter: the text of a longer id never has the length of a shorter one, so no two ids share a text.
 */
function forward(value: number, chars: number, subkeys: readonly number[]): number {
  const [a, b] = radices(chars);
  let left = Math.floor(value / b);
  let right = value % b;
  for (let round = 0; round < ROUNDS; round += 1) {
    if (round % 2 === 0) left = (left + mix(right, subkeys[round]!)) % a;
    else right = (right + mix(left, subkeys[round]!)) % b;
  }
  return left * b + right;
}

function backward(value: number, chars: number, subkeys: readonly number[]): number {
  const [a, b] = radices(chars);
  let left = Math.floor(value / b);
  let right = value % b;
  for (let round = ROUNDS - 1; round >= 0; round -= 1) {
    if (round % 2 === 0) left = (left + a - (mix(right, subkeys[round]!) % a)) % a;
    else right = (right + b - (mix(left, subkeys[round]!) % b)) % b;
  }
  return left * b + right;
}

function radices(chars: number): readonly [number, number] {
  return RADICES[chars]!;
}

/** A 32-bit integer hash (Murmur3's finaliser) of the half and the round key. */
function mix(half: number, key: number): number {
  let h = (half ^ key) >>> 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

function toText(value: number, chars: number): string {
  let text = '';
  let rest = value;
  for (let i = 0; i < chars; i += 1) {
    text = ALPHABET[rest % 32] + text;
    rest = Math.floor(rest / 32);
  }
  return text;
}

function fromText(text: string): number | undefined {
  let value = 0;
  for (const char of text) {
    const digit = VALUES.get(char);
    if (digit === undefined) return undefined;
    value = value * 32 + digit;
  }
  return value;
}
