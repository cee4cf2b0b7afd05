import type { Mark, MarkKind, RichText } from './channels/channel.ts';
import { isSafeUrl, joined, soundMarks } from './rich-text.ts';

/**
 * Reads Markdown of programs and AI agents that say it is Markdown: headings and `**` bold, `*` italic, code, fences with their language,
 * links, quotes. Lists, tables, HTML and everything that does not close stay text as written. Where a link's words are not its address,
 * the address follows in the text, so that plain text says as much and a reader sees where it leads. Pure; linear in the length.
 */
export function readMarkdown(source: string): RichText {
  const lines = source.replace(/\r\n?/g, '\n').split('\n');
  const blocks: RichText[] = [];
  for (let at = 0; at < lines.length; ) {
    const block = fenceAt(lines, at) ?? quoteAt(lines, at) ?? { shown: lineOf(lines[at]!), next: at + 1 };
    blocks.push(block.shown);
    at = block.next;
  }
  const { text, marks } = joined(blocks, '\n');
  const sound = soundMarks(text, marks);
  return sound.length === 0 ? { text } : { text, marks: sound };
}

interface Block {
  readonly shown: RichText;
  /** The line after it. */
  readonly next: number;
}

/** A fence that nobody closes ends with the text. */
function fenceAt(lines: readonly string[], at: number): Block | undefined {
  const [, fence = '', info = ''] = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})[ \t]*([^\s`]*)/.exec(lines[at]!) ?? [];
  if (fence === '') return undefined;
  let end = at + 1;
  while (end < lines.length && !closes(lines[end]!, fence)) end += 1;
  const text = lines.slice(at + 1, end).join('\n');
  const mark: Mark = { kind: 'pre', start: 0, length: text.length, ...(info !== '' && { language: info }) };
  return { shown: { text, marks: [mark] }, next: end + 1 };
}

function closes(line: string, fence: string): boolean {
  const bare = line.trim();
  return bare.length >= fence.length && bare === fence.charAt(0).repeat(bare.length);
}

const QUOTED = /^ {0,3}> ?/;

function quoteAt(lines: readonly string[], at: number): Block | undefined {
  let end = at;
  while (end < lines.length && QUOTED.test(lines[end]!)) end += 1;
  if (end === at) return undefined;
  const inner = lines.slice(at, end).map((line) => lineOf(line.replace(QUOTED, '')));
  const { text, marks = [] } = joined(inner, '\n');
  return { shown: { text, marks: [{ kind: 'quote', start: 0, length: text.length }, ...marks] }, next: end };
}

function lineOf(line: string): RichText {
  const heading = /^ {0,3}#{1,6}[ \t]/.exec(line);
  if (!heading) return inline(line);
  const words = inline(withoutHashes(line.slice(heading[0].length).trim()));
  return { text: words.text, marks: [{ kind: 'bold', start: 0, length: words.text.length }, ...(words.marks ?? [])] };
}

/** `Title ##` is closed by its last signs; `C#` is a name. */
function withoutHashes(title: string): string {
  let end = title.length;
  while (end > 0 && title.charAt(end - 1) === '#') end -= 1;
  if (end === title.length) return title;
  return end === 0 || /[ \t]/.test(title.charAt(end - 1)) ? title.slice(0, end).trimEnd() : title;
}

/** A piece of a line: what is shown of it where it turns out to mean nothing, or what it begins or ends. */
interface Token {
  text: string;
  /** Kinds that begin here; the token itself is not shown. */
  opens?: readonly MarkKind[];
  /** The token that began what ends here. */
  closes?: Token;
  url?: string;
  isCode?: true;
  /** Where an opening token is in what is shown. */
  place?: { at: number; piece: number };
}

function inline(line: string): RichText {
  return shown(new Line(line).tokens());
}

function shown(tokens: readonly Token[]): RichText {
  const pieces: string[] = [];
  const marks: Mark[] = [];
  let length = 0;
  const say = (text: string) => {
    pieces.push(text);
    length += text.length;
  };
  for (const token of tokens) {
    if (token.opens) token.place = { at: length, piece: pieces.length };
    else if (token.closes) {
      const { at, piece } = token.closes.place!;
      const look = { start: at, length: length - at, ...(token.url !== undefined && { url: token.url }) };
      for (const kind of token.closes.opens!) marks.push({ kind, ...look });
      if (token.url !== undefined && !isSaid(token.url, look.length, pieces, piece)) say(` (${token.url})`);
    } else {
      if (token.isCode) marks.push({ kind: 'code', start: length, length: token.text.length });
      say(token.text);
    }
  }
  const text = pieces.join('');
  return marks.length === 0 ? { text } : { text, marks };
}

/** Whether the words of a link, those from a piece on, are its address. */
function isSaid(url: string, length: number, pieces: readonly string[], from: number): boolean {
  const address = url.replace(/^mailto:/i, '');
  // Only then are the words put together: a line may be one long nest of links.
  const mayBe = length === url.length || length === address.length;
  return mayBe && [url, address].includes(pieces.slice(from).join(''));
}

const SPECIAL = /[\\`*_[\]!]/g;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;
const LOOKS: Readonly<Record<number, readonly MarkKind[]>> = { 1: ['italic'], 2: ['bold'], 3: ['bold', 'italic'] };
/** Brackets within an address; more is no address. */
const DEEPEST = 4;
const LONGEST_URL = 2_048;

/** One pass over one line. What begins waits on a stack until it is closed or found to be text. */
class Line {
  readonly #line: string;
  readonly #tokens: Token[] = [];
  /** What has begun, and what it looks like: `*1`, `_2`, `[`. */
  readonly #open: { key: string; token: Token; kinds: readonly MarkKind[] }[] = [];
  /** By key: places in `#open`; those beyond its end are of the past. */
  readonly #byKey = new Map<string, number[]>();
  /** Places of runs of backticks by their length, the next ones last. */
  readonly #ticks = new Map<number, number[]>();
  #at = 0;

  constructor(line: string) {
    this.#line = line;
    for (const { 0: run, index } of [...line.matchAll(/`+/g)].reverse()) {
      const places = this.#ticks.get(run.length) ?? [];
      places.push(index);
      this.#ticks.set(run.length, places);
    }
  }

  tokens(): Token[] {
    while (this.#at < this.#line.length) {
      SPECIAL.lastIndex = this.#at;
      const next = SPECIAL.exec(this.#line)?.index ?? this.#line.length;
      if (next > this.#at) this.#text(this.#line.slice(this.#at, next));
      this.#at = next;
      if (next < this.#line.length) this.#special(this.#line.charAt(next));
    }
    return this.#tokens;
  }

  #special(char: string): void {
    const follower = this.#line.charAt(this.#at + 1);
    if (char === '\\') {
      const isEscape = PUNCTUATION.test(follower);
      this.#take(isEscape ? follower : char, isEscape ? 2 : 1);
    } else if (char === '`') this.#code();
    else if (char === '[') this.#begin('[', ['link'], 1, '[');
    // An image is shown as a link to it.
    else if (char === '!') follower === '[' ? this.#begin('[', ['link'], 2, '![') : this.#take(char, 1);
    else if (char === ']') this.#endLink();
    else this.#emphasis(char);
  }

  #text(text: string): void {
    this.#tokens.push({ text });
  }

  #take(text: string, units: number): void {
    this.#text(text);
    this.#at += units;
  }

  #code(): void {
    const start = this.#at;
    const length = runAt(this.#line, start, '`');
    const places = this.#ticks.get(length)!;
    while (places.length > 0 && places.at(-1)! <= start) places.pop();
    const end = places.at(-1);
    if (end === undefined) {
      this.#take('`'.repeat(length), length);
      return;
    }
    const inner = this.#line.slice(start + length, end);
    const isPadded = /^ .*\S.* $/.test(inner);
    this.#tokens.push({ text: isPadded ? inner.slice(1, -1) : inner, isCode: true });
    this.#at = end + length;
  }

  #emphasis(char: string): void {
    const length = runAt(this.#line, this.#at, char);
    const looks = LOOKS[length];
    const [before, after] = [this.#line.charAt(this.#at - 1), this.#line.charAt(this.#at + length)];
    // snake_case is a name.
    const isInWord = char === '_' && WORD.test(before) && WORD.test(after);
    const run = char.repeat(length);
    const key = `${char}${length}`;
    const place = isInWord || before.trim() === '' ? undefined : this.#lastOpen(key);
    if (place !== undefined) this.#end(place, length);
    else if (looks && !isInWord && after.trim() !== '') this.#begin(key, looks, length, run);
    else this.#take(run, length);
  }

  #begin(key: string, kinds: readonly MarkKind[], units: number, text: string): void {
    // Until it is closed it is text; `#end` makes it a beginning.
    const token: Token = { text };
    this.#tokens.push(token);
    const places = this.#byKey.get(key) ?? [];
    places.push(this.#open.length);
    this.#byKey.set(key, places);
    this.#open.push({ key, token, kinds });
    this.#at += units;
  }

  #end(place: number, units: number, url?: string): void {
    const { token, kinds } = this.#open[place]!;
    token.opens = kinds;
    this.#tokens.push({ text: '', closes: token, ...(url !== undefined && { url }) });
    // What began in between and was not closed is text.
    this.#open.length = place;
    this.#at += units;
  }

  #lastOpen(key: string): number | undefined {
    const places = this.#byKey.get(key) ?? [];
    while (places.length > 0 && this.#open[places.at(-1)!]?.key !== key) places.pop();
    return places.at(-1);
  }

  #endLink(): void {
    const place = this.#lastOpen('[');
    const url = place === undefined ? undefined : this.#urlAt(this.#at + 1);
    if (place !== undefined && url !== undefined) this.#end(place, 1 + url.length + 2, url);
    else {
      if (place !== undefined) this.#open.length = place;
      this.#take(']', 1);
    }
  }

  /** The address in the brackets that begin there, as it is written. */
  #urlAt(from: number): string | undefined {
    if (this.#line.charAt(from) !== '(') return undefined;
    let depth = 0;
    for (let at = from; at < this.#line.length && at - from < LONGEST_URL && depth <= DEEPEST; at += 1) {
      const char = this.#line.charAt(at);
      if (char === '(') depth += 1;
      else if (char === ')') depth -= 1;
      else if (/\s/.test(char)) return undefined;
      if (depth > 0) continue;
      const url = this.#line.slice(from + 1, at);
      return isSafeUrl(url) ? url : undefined;
    }
    return undefined;
  }
}

function runAt(line: string, from: number, char: string): number {
  let end = from;
  while (line.charAt(end) === char) end += 1;
  return end - from;
}
