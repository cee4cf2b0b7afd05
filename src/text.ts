/** Pieces that every text for a person is made of: no fixed language, no domain words, pure. */

const SENTENCE_LIMIT = 240;
const SECOND_MS = 1_000;
const UNITS = [
  { ms: 86_400_000, en: 'd', zh: '天' },
  { ms: 3_600_000, en: 'h', zh: '小时' },
  { ms: 60_000, en: 'min', zh: '分' },
  { ms: SECOND_MS, en: 's', zh: '秒' },
] as const;

/** `3 s`, `2 min 5 s`, `1 h 4 min`: the largest unit and the next one, as a person would say it. */
export function duration(lang: 'en' | 'zh', ms: number): string {
  if (ms < SECOND_MS) return lang === 'zh' ? '不到 1 秒' : 'under 1 s';
  const top = UNITS.findIndex((unit) => ms >= unit.ms);
  const first = Math.floor(ms / UNITS[top]!.ms);
  const next = UNITS[top + 1];
  const rest = next ? Math.floor((ms % UNITS[top]!.ms) / next.ms) : 0;
  const said = [`${first} ${UNITS[top]![lang]}`];
  if (next && rest > 0) said.push(`${rest} ${next[lang]}`);
  return said.join(' ');
}

/** Up to `max` characters, an ellipsis in place of the rest, never half a character. */
export function shortened(text: string, max: number): string {
  return text.length <= max ? text : `${headOf(text, max - 1).trimEnd()}…`;
}

/** A text from a program or a person on one line. */
export function oneLine(text: string, max: number): string {
  return shortened(printable(text).replace(/\s+/g, ' ').trim(), max);
}

/** One sentence of what a program or an agent says about a failure: no stack, no second line. */
export function sentenceOf(error: string | null): string {
  const lines = printable(error ?? '')
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
  const first = lines[0] ?? '';
  // Python tells the error last, everybody else first.
  const line = first.startsWith('Traceback (most recent call last)') ? lines.at(-1)! : first;
  return oneLine(line.replace(/^(?:Uncaught )?Error: /, ''), SENTENCE_LIMIT);
}

/**
 * A long text as its head and its tail with a line between them that says how much is missing.
 * @param leftOut makes that line of the number of characters left out
 */
export function headAndTail(text: string, max: number, leftOut: (count: number) => string): string {
  const places = headAndTailPlaces(text, max);
  if (!places) return text;
  const { headEnd, tailStart } = places;
  return `${text.slice(0, headEnd).trimEnd()}\n${leftOut(tailStart - headEnd)}\n${text.slice(tailStart).trimStart()}`;
}

/** Where the head of a text that is longer than `max` ends and its tail begins; undefined where all of it may stay. */
export function headAndTailPlaces(text: string, max: number): { headEnd: number; tailStart: number } | undefined {
  if (text.length <= max) return undefined;
  const headEnd = headOf(text, Math.floor(max * 0.7)).length;
  return { headEnd, tailStart: text.length - tailOf(text, Math.floor(max * 0.3)).length };
}

/** Without terminal colours, control characters and marks that turn the direction of writing: programs' output is untrusted. */
export function printable(text: string): string {
  return text
    .replaceAll('\r\n', '\n')
    .replace(/\u001b\[[0-9;?]*[ -/]*[@-~]/g, '')
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, '');
}

function headOf(text: string, length: number): string {
  const end = isHighSurrogate(text, length - 1) ? length - 1 : length;
  return text.slice(0, Math.max(0, end));
}

function tailOf(text: string, length: number): string {
  const start = text.length - length;
  return text.slice(isHighSurrogate(text, start - 1) ? start + 1 : start);
}

function isHighSurrogate(text: string, index: number): boolean {
  const unit = text.charCodeAt(index);
  return unit >= 0xd800 && unit <= 0xdbff;
}
