import type { Mark, MarkKind, RichText } from './channels/channel.ts';
import { headAndTailPlaces } from './text.ts';

/** Texts with marks: how wording makes them, and what keeps them sound. Pure; no marks cost nothing. */

/** What a text for people is made of; a plain string has no marks. */
export type Words = string | RichText;

/**
 * A template literal whose values may have marks: `` rich`✅ ${bold(title)} — done` ``.
 */
export function rich(strings: TemplateStringsArray, ...values: readonly (Words | number)[]): RichText {
  let text = strings[0]!;
  let marks: Mark[] | undefined;
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index]!;
    if (typeof value === 'object') {
      marks = movedBehind(marks, value.marks, text.length);
      text += value.text;
    } else text += value;
    text += strings[index + 1]!;
  }
  return withMarks(text, marks);
}

/** The pieces one after the other, with `separator` between them. */
export function joined(pieces: readonly Words[], separator: string): RichText {
  let text = '';
  let marks: Mark[] | undefined;
  for (let index = 0; index < pieces.length; index += 1) {
    const piece = pieces[index]!;
    if (index > 0) text += separator;
    if (typeof piece === 'object') {
      marks = movedBehind(marks, piece.marks, text.length);
      text += piece.text;
    } else text += piece;
  }
  return withMarks(text, marks);
}

/** For titles. */
export function bold(text: string): RichText {
  return wholly(text, 'bold');
}

/** For what is typed or copied: ids, commands. */
export function code(text: string): RichText {
  return wholly(text, 'code');
}

/** For what a program has printed: as it is, in its columns. */
export function pre(text: string): RichText {
  return wholly(text, 'pre');
}

/** The same with the `marks` absent where there are none. */
export function asRich(words: Words): RichText {
  return typeof words === 'string' ? { text: words } : words;
}

/** The stretch from `start` to `end`, with what its marks have in it. */
export function sliceOf({ text, marks }: RichText, start: number, end: number): RichText {
  const cut = marks?.flatMap((mark) => {
    const from = Math.max(mark.start, start);
    const to = Math.min(mark.start + mark.length, end);
    return to > from ? [{ ...mark, start: from - start, length: to - from }] : [];
  });
  return withMarks(text.slice(start, end), cut ?? []);
}

/**
 * A long text as its head and its tail with a line between them that says how much is missing; like `headAndTail` of text.ts.
 */
export function richHeadAndTail(whole: RichText, max: number, leftOut: (count: number) => string): RichText {
  const places = headAndTailPlaces(whole.text, max);
  if (!places) return whole;
  const { headEnd, tailStart } = places;
  const { text } = whole;
  const head = sliceOf(whole, 0, text.slice(0, headEnd).trimEnd().length);
  const tail = sliceOf(whole, text.length - text.slice(tailStart).trimStart().length, text.length);
  return joined([head, leftOut(tailStart - headEnd), tail], '\n');
}

/** Without the single units that the pattern (global) finds; marks move with their text. */
export function withoutUnits({ text, marks }: RichText, pattern: RegExp): RichText {
  if (marks === undefined || marks.length === 0) return { text: text.replace(pattern, '') };
  const gone = Array.from(text.matchAll(pattern), ({ index }) => index);
  if (gone.length === 0) return { text, marks };
  const moved = marks.map((mark) => {
    const start = mark.start - countBefore(gone, mark.start);
    const end = mark.start + mark.length;
    return { ...mark, start, length: end - countBefore(gone, end) - start };
  });
  return withMarks(text.replace(pattern, ''), moved);
}

/** More than this in one message is kept plain: nobody reads it for its looks. */
const MOST_MARKS = 1_000;

/**
 * The marks that every platform can show, in order: within the text, around whole characters that can be seen, one inside of the other
 * or apart, nothing inside of code, none inside of its own kind, links that lead to a page or an address.
 */
export function soundMarks(text: string, marks: readonly Mark[] | undefined): readonly Mark[] {
  if (marks === undefined || marks.length === 0) return [];
  const possible = marks.length === 1 ? placed(text, marks[0]!) : marks.flatMap((mark) => placed(text, mark));
  possible.sort(outerFirst);
  const sound: Mark[] = [];
  const around: Mark[] = [];
  for (const mark of possible) {
    while (around.length > 0 && endOf(around.at(-1)!) <= mark.start) around.pop();
    const outer = around.at(-1);
    const end = outer ? Math.min(endOf(mark), endOf(outer)) : endOf(mark);
    const kept = { ...mark, length: end - mark.start };
    if (!fitsInto(kept, around) || !VISIBLE.test(text.slice(kept.start, end))) continue;
    if (sound.push(kept) === MOST_MARKS) break;
    around.push(kept);
  }
  return sound;
}

/** Whether a text may lead there: pages and addresses, nothing that acts. */
export function isSafeUrl(url: string): boolean {
  if (!/^(?:https?:\/\/|mailto:)[^\s\p{Cc}\p{Cs}]+$/iu.test(url) || url.length > 2_048) return false;
  return URL.canParse(url);
}

function withMarks(text: string, marks: readonly Mark[] | undefined): RichText {
  return marks === undefined || marks.length === 0 ? { text } : { text, marks };
}

/** `marks` with `more` behind them, `by` units further on. */
function movedBehind(marks: Mark[] | undefined, more: readonly Mark[] | undefined, by: number): Mark[] | undefined {
  if (more === undefined) return marks;
  const all = marks ?? [];
  for (const mark of more) all.push({ ...mark, start: mark.start + by });
  return all;
}

function wholly(text: string, kind: MarkKind): RichText {
  return text === '' ? { text } : { text, marks: [{ kind, start: 0, length: text.length }] };
}

/** How many of the sorted places are before `at`. */
function countBefore(places: readonly number[], at: number): number {
  let [low, high] = [0, places.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle]! < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Which may be around which where both begin and end together. */
const OUTERMOST_FIRST: readonly MarkKind[] = ['quote', 'link', 'bold', 'italic', 'pre', 'code'];
const VISIBLE = /[^\s\u200B-\u200F\u2060\uFEFF]/;
const LANGUAGE = /^[\w+#.-]{1,32}$/;

const endOf = ({ start, length }: Mark) => start + length;
const isCode = ({ kind }: Mark) => kind === 'code' || kind === 'pre';

function outerFirst(a: Mark, b: Mark): number {
  return a.start - b.start || b.length - a.length || OUTERMOST_FIRST.indexOf(a.kind) - OUTERMOST_FIRST.indexOf(b.kind);
}

/** Within the text and around whole characters, with what its kind needs and nothing else; none where that is impossible. */
function placed(text: string, { kind, start, length, language, url }: Mark): Mark[] {
  if (!OUTERMOST_FIRST.includes(kind) || !Number.isSafeInteger(start) || !Number.isSafeInteger(length)) return [];
  let [from, to] = [Math.max(0, start), Math.min(text.length, start + length)];
  if (from >= to) return [];
  if (isInsidePair(text, from)) from -= 1;
  if (isInsidePair(text, to)) to += 1;
  const place = { start: from, length: to - from };
  if (kind === 'link') return url !== undefined && isSafeUrl(url) ? [{ kind, ...place, url }] : [];
  if (kind === 'pre' && language !== undefined && LANGUAGE.test(language)) return [{ kind, ...place, language }];
  return [{ kind, ...place }];
}

function isInsidePair(text: string, at: number): boolean {
  const [before, after] = [text.charCodeAt(at - 1), text.charCodeAt(at)];
  return before >= 0xd800 && before <= 0xdbff && after >= 0xdc00 && after <= 0xdfff;
}

function fitsInto(mark: Mark, around: readonly Mark[]): boolean {
  if (around.some((outer) => outer.kind === mark.kind || isCode(outer))) return false;
  return !isCode(mark) || around.every(({ kind }) => kind === 'quote');
}
