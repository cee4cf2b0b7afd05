/** Reads what follows `/run <template>`: `key=value`, `key="two words"`, and text without a key. No escapes: use the other quotes. */
export interface SplitWords {
  /** Values by key, as typed; keys are lower case. Without a prototype. */
  readonly named: Readonly<Record<string, string>>;
  /** The text without a key; undefined where there is none. */
  readonly rest: string | undefined;
}

export type SplitFault =
  | { readonly fault: 'unterminated_quote'; readonly at: string }
  | { readonly fault: 'text_after_quote'; readonly at: string }
  | { readonly fault: 'key_twice'; readonly at: string };

/** Splits the words, or says what is wrong; `at` is a short piece of the text that shows where. */
export function splitWords(text: string): SplitWords | SplitFault {
  const named = Object.create(null) as Record<string, string>;
  let rest: Rest | undefined;
  for (let at = nextWord(text, 0); at < text.length; ) {
    const key = KEY.exec(text.slice(at, at + MAX_KEY_CHARS))?.[0];
    const value = readValue(text, at + (key?.length ?? 0));
    if ('fault' in value) return { ...value, at: text.slice(at, at + SHOWN_CHARS) };
    if (key !== undefined) {
      const name = key.slice(0, -1).normalize('NFKC').toLowerCase();
      if (name in named) return { fault: 'key_twice', at: name };
      named[name] = value.text;
    } else rest = joined(text, rest, { text: value.text, start: at, end: value.end });
    at = nextWord(text, value.end);
    if (key !== undefined && rest) rest = { ...rest, isOpen: false };
  }
  return { named, rest: rest?.text };
}

interface Piece {
  text: string;
  start: number;
  end: number;
}

/** `isOpen`: nothing with a key has come since, so the white space before the next piece belongs to the text. */
type Rest = Piece & { isOpen: boolean };

const MAX_KEY_CHARS = 80;
const SHOWN_CHARS = 20;
/** Full-width letters and the full-width equals sign come from Chinese keyboards. */
const KEY = /^[\p{L}_][\p{L}\p{N}_-]*[=＝]/u;
const SPACE = /[\s\p{White_Space}]/u;
/** Opening mark → the marks that close it. Phones turn straight quotes into curly ones, Chinese keyboards alternate them. */
const QUOTES: ReadonlyMap<string, string> = new Map([
  ['"', '"'],
  ["'", "'"],
  ['＂', '＂'],
  ['＇', '＇'],
  ['“', '”“'],
  ['”', '”“'],
  ['‘', '’‘'],
  ['’', '’‘'],
  ['「', '」'],
  ['『', '』'],
]);

function nextWord(text: string, from: number): number {
  let at = from;
  while (at < text.length && SPACE.test(text[at]!)) at += 1;
  return at;
}

/** One value: quoted, or up to the next white space. Quotes inside a word are letters, as in O'Brien. */
function readValue(text: string, start: number): { text: string; end: number } | { fault: SplitFault['fault'] } {
  const closers = QUOTES.get(text[start] ?? '');
  let end = start + (closers ? 1 : 0);
  const isEnd = (char: string) => (closers ? closers.includes(char) : SPACE.test(char));
  while (end < text.length && !isEnd(text[end]!)) end += 1;
  if (!closers) return { text: text.slice(start, end), end };
  if (end === text.length) return { fault: 'unterminated_quote' };
  const after = text[end + 1];
  if (after !== undefined && !SPACE.test(after)) return { fault: 'text_after_quote' };
  return { text: text.slice(start + 1, end), end: end + 1 };
}

function joined(text: string, rest: Rest | undefined, piece: Piece): Rest {
  if (!rest) return { ...piece, isOpen: true };
  const between = rest.isOpen ? text.slice(rest.end, piece.start) : ' ';
  return { text: rest.text + between + piece.text, start: rest.start, end: piece.end, isOpen: true };
}
