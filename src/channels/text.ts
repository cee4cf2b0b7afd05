/** How a platform counts: Telegram in UTF-16 units (what `length` says), WeCom in UTF-8 bytes. */
export type TextMeasure = 'utf16' | 'utf8';

export interface SplitOptions {
  /** Largest size of one part, in units of `measure`; at least 32. */
  readonly max: number;
  readonly measure: TextMeasure;
}

/** Stands for a text with nothing to show: platforms refuse empty messages, and a sent answer must not vanish. */
const NOTHING_TO_SHOW = '…';

const SMALLEST_MAX = 32;

/**
 * Cuts a text into parts a platform accepts: at a paragraph, else a line, else a sentence or a blank, else between two graphemes.
 * Control characters are removed and broken surrogates replaced (`cleanText`); blanks at a cut are dropped. Several parts end with
 * a line `(1/3)`, counted within `max`. At least one part, none of them blank. Linear in the length of the text.
 * @throws RangeError when `max` is below 32.
 */
export function splitText(text: string, options: SplitOptions): string[] {
  if (options.max < SMALLEST_MAX) throw new RangeError(`max must be at least ${SMALLEST_MAX}`);
  const clean = cleanText(text);
  if (isBlank(clean)) return [NOTHING_TO_SHOW];
  if (fits(clean, options.max, options.measure)) return [clean];
  for (let digits = 1; ; digits += 1) {
    const widest = '9'.repeat(digits);
    const parts = cut(clean, options.max - mark(widest, widest).length, options.measure);
    if (parts.length < 10 ** digits) return numbered(parts);
  }
}

/** The text with line ends as `\n`, without control characters (tab stays), and with broken surrogates replaced by U+FFFD. */
export function cleanText(text: string): string {
  return text
    .replace(/\r\n?/g, '\n')
    .replace(/[\u0000-\u0008\u000B-\u001F\u007F-\u009F]/g, '')
    .replace(/\p{Cs}/gu, '\uFFFD');
}

/** Size of a well-formed text in units of `measure`. */
export function sizeOf(text: string, measure: TextMeasure): number {
  return measure === 'utf16' ? text.length : Buffer.byteLength(text, 'utf8');
}

/** Nothing visible: Unicode blanks and the zero-width characters that platforms trim. */
function isBlank(text: string): boolean {
  return /^[\s\u200B-\u200F\u2060\uFEFF]*$/.test(text);
}

function fits(text: string, max: number, measure: TextMeasure): boolean {
  return text.length <= max && sizeOf(text, measure) <= max;
}

function mark(part: number | string, parts: number | string): string {
  return `\n(${part}/${parts})`;
}

function numbered(parts: readonly string[]): string[] {
  return parts.length === 1 ? [...parts] : parts.map((part, n) => part + mark(n + 1, parts.length));
}

function cut(text: string, limit: number, measure: TextMeasure): string[] {
  const parts: string[] = [];
  let at = 0;
  while (at < text.length) {
    const end = furthest(text, at, limit, measure);
    const [partEnd, next] = end >= text.length ? [text.length, text.length] : cutPlace(text, at, end);
    const part = next > partEnd || next === text.length ? text.slice(at, partEnd).trimEnd() : text.slice(at, partEnd);
    if (!isBlank(part)) parts.push(part);
    at = next;
  }
  return parts;
}

/** The largest `end` so that the text from `at` to `end` is within the limit; never inside a surrogate pair. */
function furthest(text: string, at: number, limit: number, measure: TextMeasure): number {
  if (measure === 'utf16') return betweenPairs(text, Math.min(at + limit, text.length));
  let end = at;
  for (let left = limit; end < text.length; ) {
    const code = text.charCodeAt(end);
    const pair = code >= 0xd800 && code <= 0xdbff;
    left -= code < 0x80 ? 1 : code < 0x800 ? 2 : pair ? 4 : 3;
    if (left < 0) break;
    end += pair ? 2 : 1;
  }
  return end;
}

function betweenPairs(text: string, end: number): number {
  const code = text.charCodeAt(end);
  return code >= 0xdc00 && code <= 0xdfff ? end - 1 : end;
}

/** Where this part ends and where the next begins (blanks between them are dropped). */
function cutPlace(text: string, at: number, end: number): [number, number] {
  // One character more than fits: a blank there means that the whole window is a good part.
  const window = text.slice(at, end + 1);
  const enough = Math.floor(window.length / 2);
  const line = window.lastIndexOf('\n\n') >= enough ? window.lastIndexOf('\n\n') : window.lastIndexOf('\n');
  if (line >= enough) return [at + line, skip(text, at + line, '\n')];
  const blank = lastOf(window, BLANKS);
  const sentence = lastOf(window.slice(0, -1), SENTENCE_ENDS);
  if (sentence >= enough && sentence > blank) return [at + sentence + 1, at + sentence + 1];
  if (blank >= enough) return [at + blank, skip(text, at + blank, BLANKS)];
  const early = Math.max(line, blank);
  if (early > 0 && !WITHOUT_BLANKS.test(window.slice(early + 1)))
    return [at + early, skip(text, at + early, `${BLANKS}\n`)];
  const boundary = graphemeStart(text, at, end);
  return [boundary, boundary];
}

const BLANKS = ' \t\u3000';
const SENTENCE_ENDS = '。！？；，、';
/** Scripts written without blanks: there a far blank is no better place than any other. */
const WITHOUT_BLANKS = /[\u0E00-\u0EFF\u1000-\u109F\u1780-\u17FF\u2E80-\uFFEF]/;

function lastOf(window: string, chars: string): number {
  return Math.max(...[...chars].map((char) => window.lastIndexOf(char)));
}

function skip(text: string, from: number, chars: string): number {
  let at = from;
  while (at < text.length && chars.includes(text.charAt(at))) at += 1;
  return at;
}

/** What is left of a grapheme that had to be cut is no part of its own. */
const INVISIBLE_ONLY = /^[\u200B-\u200F\u2060\uFEFF]*$/;
const segmenter = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/** The start of the grapheme that `end` points into, or a place between two code points when it began before `at`. */
function graphemeStart(text: string, at: number, end: number): number {
  const from = knownBoundary(text, at, end);
  const around = text.slice(from, betweenPairs(text, end + 2));
  const start = from + (segmenter.segment(around).containing(end - from)?.index ?? 0);
  return INVISIBLE_ONLY.test(text.slice(at, start)) ? end : start;
}

/** A grapheme boundary shortly before `end`: between two plain characters, else `at`. The segmenter only sees what follows it. */
function knownBoundary(text: string, at: number, end: number): number {
  for (let i = end - 1; i > at; i -= 1) {
    if (isPlain(text.charCodeAt(i)) && isPlain(text.charCodeAt(i - 1))) return i;
  }
  return at;
}

/** Printable ASCII and Chinese characters: a grapheme always begins before them when such a one precedes. */
function isPlain(code: number): boolean {
  return (code >= 0x20 && code < 0x7f) || (code >= 0x4e00 && code <= 0x9fff);
}
