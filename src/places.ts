import { sha256 } from './ids.ts';

/** Places for arguments in a template's texts: `{{name}}`, and `{{hash name}}` for the first 16 hex digits of the value's sha256. */
export interface Place {
  readonly name: string;
  readonly hash: boolean;
  /** All fixed text before it, as if the places before it were empty. */
  readonly before: string;
}

/** The places in `text`, in order, or the sentence that says what is wrong with one. */
export function placesIn(text: string): Place[] | string {
  const places: Place[] = [];
  let end = 0;
  let before = '';
  const rest = text.replace(PLACE, (match: string, hash: string | undefined, name: string, offset: number) => {
    before += text.slice(end, offset);
    places.push({ name, hash: hash !== undefined, before });
    end = offset + match.length;
    return '\n';
  });
  const bad = rest.indexOf('{{');
  return bad < 0 ? places : `has ${clip(rest.slice(bad))}, which is no place for an argument; write {{name}}`;
}

/** The place that is the whole text, if it is one. */
export function onlyPlace(text: string): string | undefined {
  const match = WHOLE.exec(text);
  return match && match[1] === undefined ? match[2] : undefined;
}

/**
 * Puts the values in, in one pass: what a value contains is never looked at again. An argument without a value becomes empty text.
 * @param shown how a value is written; a hash is always that of the value itself
 */
export function fillPlaces(
  text: string,
  args: Readonly<Record<string, string | number | boolean>>,
  shown: (value: string) => string = (value) => value,
): string {
  if (!text.includes('{{')) return text;
  return text.replace(PLACE, (_match, hash: string | undefined, name: string) => {
    const value = Object.hasOwn(args, name) ? String(args[name]) : '';
    return hash === undefined ? shown(value) : sha256(value).slice(0, HASH_CHARS);
  });
}

const HASH_CHARS = 16;
const SOURCE = String.raw`\{\{\s*(hash\s+)?([a-z][a-z0-9_]*)\s*\}\}`;
const PLACE = new RegExp(SOURCE, 'g');
const WHOLE = new RegExp(`^${SOURCE}$`);

function clip(text: string): string {
  const end = text.indexOf('}}');
  return text.slice(0, end < 0 ? 20 : Math.min(end + 2, 40));
}
