import { joined, sliceOf, soundMarks, withoutUnits } from '../rich-text.ts';
import type { LongText, Part, RichText } from './channel.ts';

/** How a platform counts: Telegram in UTF-16 units (what `length` says), WeCom in UTF-8 bytes. */
export type TextMeasure = 'utf16' | 'utf8';

export interface SplitOptions {
  /** Largest size of one part, in units of `measure`; at least 32. */
  readonly max: number;
  readonly measure: TextMeasure;
  /** What would be more parts becomes head, tail and a file; absent: any number of parts. At least 2. */
  readonly mostParts?: number;
}

/** Stands for a text with nothing to show: platforms refuse empty messages, and a sent answer must not vanish. */
const NOTHING_TO_SHOW = '…';

const SMALLEST_MAX = 32;
const UNPRINTABLE = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F]/g;

/**
 * Cuts a text into parts a platform accepts: at a paragraph, else a line, else a sentence or a blank, else between two graphemes.
 * Control characters are removed and broken surrogates replaced (`cleanText`); blanks at a cut are dropped; marks are made sound and
 * cut with their text, so that code goes on as code. Several parts end with a line `(1/3)`, counted within `max`. At least one part,
 * none of them blank. More than `mostParts` become the head, the tail and a file with all of it. A pure function of its arguments;
 * linear in the length of the text.
 * @throws RangeError when `max` is below 32
 */
export function split(message: LongText, options: SplitOptions): Part[] {
  if (options.max < SMALLEST_MAX) throw new RangeError(`max must be at least ${SMALLEST_MAX}`);
  const clean = cleanRich(message);
  if (isBlank(clean.text)) return [{ text: NOTHING_TO_SHOW }];
  if (fits(clean.text, options.max, options.measure)) return [clean];
  for (let digits = 1; ; digits += 1) {
    const widest = '9'.repeat(digits);
    const limit = options.max - numberOf(widest, widest).length;
    const places = cut(clean.text, limit, options.measure);
    if (places.length > (options.mostParts ?? Number.POSITIVE_INFINITY))
      return numbered(headTailFile(clean, places[0]!, limit, options.measure, message.taskId));
    if (places.length < 10 ** digits) return numbered(places.map(([start, end]) => stretch(clean, start, end)));
  }
}

/** The text with line ends as `\n`, without control characters (tab stays), and with broken surrogates replaced by U+FFFD. */
export function cleanText(text: string): string {
  return cleanRich({ text }).text;
}

/** A clean text, its marks sound and where it is now. */
function cleanRich({ text, marks }: RichText): RichText {
  const replaced = text.replace(/\r(?!\n)/g, '\n').toWellFormed();
  const clean = withoutUnits({ text: replaced, ...(marks && { marks }) }, UNPRINTABLE);
  const sound = soundMarks(clean.text, clean.marks);
  return sound.length === 0 ? { text: clean.text } : { text: clean.text, marks: sound };
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

function numberOf(part: number | string, parts: number | string): string {
  return `\n(${part}/${parts})`;
}

function numbered(parts: readonly Part[]): Part[] {
  if (parts.length === 1) return [...parts];
  return parts.map((part, n) => ({ ...part, text: part.text + numberOf(n + 1, parts.length) }));
}

/** A mark of which only blanks are left is none. */
function stretch(whole: RichText, start: number, end: number): RichText {
  const { text, marks } = sliceOf(whole, start, end);
  const sound = soundMarks(text, marks);
  return sound.length === 0 ? { text } : { text, marks: sound };
}

/** Where each part begins and ends. */
type Place = readonly [start: number, end: number];

function cut(text: string, limit: number, measure: TextMeasure): Place[] {
  const parts: Place[] = [];
  let at = 0;
  while (at < text.length) {
    const end = furthest(text, at, limit, measure);
    const [partEnd, next] = end >= text.length ? [text.length, text.length] : cutPlace(text, at, end);
    const part = text.slice(at, partEnd);
    const shown = next > partEnd || next === text.length ? part.trimEnd() : part;
    if (!isBlank(shown)) parts.push([at, at + shown.length]);
    at = next;
  }
  return parts;
}

/** What is between the shown head and the shown tail is in the file, as everything is. */
const LEFT_OUT = '[…]';
const WHOLE_TEXT = 'message.txt';

function headTailFile(
  whole: RichText,
  [from, headEnd]: Place,
  limit: number,
  measure: TextMeasure,
  taskId: string | undefined,
): Part[] {
  const tail = stretch(whole, tailStart(whole.text, headEnd, limit - LEFT_OUT.length - 4, measure), whole.text.length);
  const shownTail = stretch(tail, 0, tail.text.trimEnd().length);
  const file = { name: WHOLE_TEXT, text: whole.text, instead: insteadOfFile(taskId) };
  return [
    stretch(whole, from, headEnd),
    joined([LEFT_OUT, isBlank(shownTail.text) ? '' : shownTail], '\n'),
    { text: WHOLE_TEXT, file },
  ];
}

function insteadOfFile(taskId: string | undefined): string {
  if (taskId === undefined) return 'The file with the whole text could not be sent. / 全文文件发送失败。';
  return `The file with the whole text could not be sent; /logs ${taskId} / 全文文件发送失败，请发送 /logs ${taskId}`;
}

/** Where the longest tail within the limit begins: at a line, else a blank, else a grapheme. */
function tailStart(text: string, from: number, limit: number, measure: TextMeasure): number {
  const first = earliest(text, from, limit, measure);
  const window = text.slice(first, first + Math.floor((text.length - first) / 2));
  const line = window.indexOf('\n');
  if (line >= 0) return first + line + 1;
  const blank = window.search(/[ \t\u3000]/);
  if (blank >= 0) return first + blank + 1;
  const start = graphemeStart(text, from, first);
  if (start === first) return first;
  const cluster = segmenter.segment(text.slice(start, first + WIDEST_CLUSTER)).containing(0)!.segment;
  return start + cluster.length < first + WIDEST_CLUSTER ? start + cluster.length : first;
}

/** A grapheme that is longer than this is cut between code points. */
const WIDEST_CLUSTER = 64;

/** The smallest `start` so that the text from there to its end is within the limit; never inside a surrogate pair. */
function earliest(text: string, from: number, limit: number, measure: TextMeasure): number {
  let start = text.length;
  for (let left = limit; start > from; ) {
    const code = text.charCodeAt(start - 1);
    const isPair = code >= 0xdc00 && code <= 0xdfff;
    const units = isPair ? 2 : 1;
    left -= measure === 'utf16' ? units : bytesOf(code, isPair);
    if (left < 0) break;
    start -= units;
  }
  return start;
}

/** The largest `end` so that the text from `at` to `end` is within the limit; never inside a surrogate pair. */
function furthest(text: string, at: number, limit: number, measure: TextMeasure): number {
  if (measure === 'utf16') return betweenPairs(text, Math.min(at + limit, text.length));
  let end = at;
  for (let left = limit; end < text.length; ) {
    const code = text.charCodeAt(end);
    const pair = code >= 0xd800 && code <= 0xdbff;
    left -= bytesOf(code, pair);
    if (left < 0) break;
    end += pair ? 2 : 1;
  }
  return end;
}

function betweenPairs(text: string, end: number): number {
  const code = text.charCodeAt(end);
  return code >= 0xdc00 && code <= 0xdfff ? end - 1 : end;
}

/** In UTF-8. */
function bytesOf(code: number, isPair: boolean): number {
  if (isPair) return 4;
  return code < 0x80 ? 1 : code < 0x800 ? 2 : 3;
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
