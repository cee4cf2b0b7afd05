/** Characters that terminals show two columns wide: CJK, kana, Hangul, full-width forms (Unicode TR 11), and emoji. */
const WIDE =
  /^(?:[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1b000}-\u{1b2ff}\u{1f200}-\u{1f2ff}\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}|\p{Extended_Pictographic}\ufe0f)/u;

const graphemes = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/** Columns that a terminal needs for this text. */
export function displayWidth(text: string): number {
  let width = 0;
  for (const { segment } of graphemes.segment(text)) width += WIDE.test(segment) ? 2 : 1;
  return width;
}

/** What a program or a stranger wrote, safe for a terminal: control characters (escape sequences, carriage returns) show as `·`. */
export function printable(text: string): string {
  return text
    .replace(/\r\n/g, '\n')
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, '·');
}

/** The same on one line, cut to so many columns. */
export function oneLine(text: string, columns: number): string {
  const flat = printable(text).replace(/\s+/g, ' ').trim();
  if (displayWidth(flat) <= columns) return flat;
  let out = '';
  let width = 0;
  for (const { segment } of graphemes.segment(flat)) {
    width += displayWidth(segment);
    if (width > columns - 1) break;
    out += segment;
  }
  return `${out}…`;
}

/** Rows under headings, columns two blanks apart; `none` where there are no rows. */
export function table(headings: readonly string[], rows: readonly (readonly string[])[], none: string): string {
  if (rows.length === 0) return none;
  const lines = [headings, ...rows.map((row) => row.map((cell) => oneLine(cell, MAX_CELL)))];
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => displayWidth(line[column] ?? ''))));
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell + ' '.repeat(widths[column]! - displayWidth(cell)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

const MAX_CELL = 72;

/** `name: value` lines, aligned; absent values are left out. */
export function fields(entries: readonly (readonly [string, string | undefined])[]): string {
  const there = entries.filter(
    (entry): entry is readonly [string, string] => entry[1] !== undefined && entry[1] !== '',
  );
  const width = Math.max(...there.map(([name]) => name.length)) + 1;
  return there
    .map(
      ([name, value]) =>
        `${`${name}:`.padEnd(width)} ${printable(value).replaceAll('\n', `\n${' '.repeat(width + 1)}`)}`,
    )
    .join('\n');
}

/** `2026-05-04 09:30:12` in the zone of this machine; empty for nothing. */
export function localTime(epochMs: number | null | undefined): string {
  if (epochMs === null || epochMs === undefined) return '';
  const at = new Date(epochMs);
  const two = (value: number) => String(value).padStart(2, '0');
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}
