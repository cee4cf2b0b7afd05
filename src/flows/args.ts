import { AppError } from '../errors.ts';
import type { ArgValue } from '../tasks/run-words.ts';
import { nearest } from './arg-nearest.ts';
import { argSentences as say } from './arg-sentences.ts';
import type { ArgSpec, Template, Texts } from './template-model.ts';

/** An argument that cannot be accepted: `invalid_request`, the field is `args.<name>`, the message is the English text. */
export class ArgumentError extends AppError {
  /** The same sentence in both languages. */
  readonly texts: Texts;

  constructor(name: string, texts: Texts) {
    super('invalid_request', texts.en, { field: name === '' ? 'args' : `args.${name}` });
    this.texts = texts;
  }
}

export interface ArgContext {
  /** The moment of creation, epoch milliseconds. */
  now: number;
  /** IANA zone in which `today` is meant. */
  timeZone: string;
}

/** Longest text, characters, where the template sets no `max`. */
export const DEFAULT_MAX_CHARS = 2_000;

/**
 * Checks what was given against the template and answers the values a task keeps: defaults filled in, `today` turned into a day.
 * Text is accepted for every type, as chat has nothing else. Empty text counts as not given. Only own keys are looked at, so
 * `__proto__` or `constructor` are unknown names like any other.
 * @throws ArgumentError for the first argument that is wrong; a message never repeats the value
 */
export function checkArgs(
  template: Pick<Template, 'id' | 'args'>,
  given: Readonly<Record<string, unknown>>,
  context: ArgContext,
): Record<string, ArgValue> {
  if (given === null || typeof given !== 'object' || Array.isArray(given)) {
    throw new ArgumentError('', { en: 'args must be an object of names and values', zh: 'args 必须是名称和值的对象' });
  }
  refuseUnknown(template, Object.keys(given));
  const args: Record<string, ArgValue> = {};
  for (const [name, spec] of Object.entries(template.args)) {
    const value = Object.hasOwn(given, name) ? given[name] : undefined;
    const checked = value === undefined || value === '' ? spec.default : checkValue(name, spec, value);
    if (checked !== undefined) args[name] = spec.type === 'date' ? dayOf(String(checked), context) : checked;
    else if (spec.required) throw new ArgumentError(name, say.missing(name));
  }
  refuseDaysOutOfRange(template, args);
  return args;
}

/**
 * One value against one argument, without its default. Dates stay words (`today`) or days.
 * @throws ArgumentError
 */
export function checkValue(name: string, spec: ArgSpec, value: unknown): ArgValue {
  if (typeof value === 'string') refuseBrokenText(name, value);
  const checked = CHECKS[spec.type](name, spec, value);
  if (spec.noDash && String(checked).startsWith('-')) throw new ArgumentError(name, say.dash(name));
  if (spec.noDots && /^\.{1,2}$/.test(String(checked))) throw new ArgumentError(name, say.path);
  return checked;
}

/** A template's pattern; it has to match the whole value. @throws SyntaxError */
export function patternOf(pattern: string): RegExp {
  return new RegExp(`^(?:${pattern})$`, 'u');
}

/** A day of the calendar, written YYYY-MM-DD. */
export function isDay(text: string): boolean {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text)) return false;
  const date = new Date(`${text}T00:00:00Z`);
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text);
}

function refuseUnknown(template: Pick<Template, 'id' | 'args'>, names: readonly string[]): void {
  const unknown = names.find((name) => !Object.hasOwn(template.args, name));
  if (unknown === undefined) return;
  const known = Object.keys(template.args);
  const shown = unknown.length > 64 ? `${unknown.slice(0, 63)}…` : unknown;
  throw new ArgumentError(shown, say.unknown(shown, template.id, nearest(unknown, known), known));
}

function refuseBrokenText(name: string, value: string): void {
  if (value.includes('\0')) throw new ArgumentError(name, say.nul(name));
  if (!value.isWellFormed()) throw new ArgumentError(name, say.broken(name));
}

type Check = (name: string, spec: ArgSpec, value: unknown) => ArgValue;

const CHECKS: Readonly<Record<ArgSpec['type'], Check>> = {
  string: checkText,
  number: (name, spec, value) => checkNumber(name, spec, value, say.notNumber(name)),
  integer: (name, spec, value) => {
    const number = checkNumber(name, spec, value, say.notInteger(name));
    if (!Number.isSafeInteger(number)) throw new ArgumentError(name, say.notInteger(name));
    return number;
  },
  boolean: (name, _spec, value) => {
    const word = typeof value === 'string' ? value.normalize('NFKC').toLowerCase() : value;
    if (TRUE.has(word)) return true;
    if (FALSE.has(word)) return false;
    throw new ArgumentError(name, say.notBoolean(name));
  },
  date: (name, _spec, value) => {
    const text = typeof value === 'string' ? value.normalize('NFKC') : '';
    if (TODAY.has(text.toLowerCase())) return 'today';
    if (!isDay(text)) throw new ArgumentError(name, say.notDate(name));
    return text;
  },
  enum: (name, { values = [] }, value) => {
    if (typeof value === 'string' && values.includes(value)) return value;
    const folded = typeof value === 'string' ? value.normalize('NFKC').toLowerCase() : undefined;
    const found = values.find((item) => item.normalize('NFKC').toLowerCase() === folded);
    if (found === undefined) throw new ArgumentError(name, say.notOneOf(name, values));
    return found;
  },
};

const TRUE: ReadonlySet<unknown> = new Set([true, 'true', 'yes', 'on', '1', '是']);
const FALSE: ReadonlySet<unknown> = new Set([false, 'false', 'no', 'off', '0', '否']);
const TODAY: ReadonlySet<string> = new Set(['today', '今天']);

function checkText(name: string, spec: ArgSpec, value: unknown): string {
  if (typeof value !== 'string') throw new ArgumentError(name, say.notText(name));
  const max = Number(spec.max ?? DEFAULT_MAX_CHARS);
  // Before anything that costs more with the length: a character is one or two units.
  if (value.length > 2 * max) throw new ArgumentError(name, say.tooLong(name, max));
  const chars = [...value].length;
  if (chars > max) throw new ArgumentError(name, say.tooLong(name, max));
  if (spec.min !== undefined && chars < Number(spec.min))
    throw new ArgumentError(name, say.tooShort(name, Number(spec.min)));
  if (spec.pattern !== undefined && !patternOf(spec.pattern).test(value))
    throw new ArgumentError(name, say.noMatch(name, spec.pattern));
  return value;
}

function checkNumber(name: string, spec: ArgSpec, value: unknown, wrong: Texts): number {
  const text = typeof value === 'string' ? value.normalize('NFKC') : undefined;
  const number = text === undefined ? value : /^[+-]?\d{1,16}(\.\d{1,16})?$/.test(text) ? Number(text) : undefined;
  if (typeof number !== 'number' || !Number.isFinite(number)) throw new ArgumentError(name, wrong);
  if (spec.min !== undefined && number < Number(spec.min)) throw new ArgumentError(name, say.tooSmall(name, spec.min));
  if (spec.max !== undefined && number > Number(spec.max)) throw new ArgumentError(name, say.tooLarge(name, spec.max));
  return number === 0 ? 0 : number; // no minus zero
}

/** Only here, because `today` may be out of range too. Days compare as text. */
function refuseDaysOutOfRange(template: Pick<Template, 'args'>, args: Readonly<Record<string, ArgValue>>): void {
  for (const [name, { type, min, max }] of Object.entries(template.args)) {
    const day = args[name];
    if (type !== 'date' || typeof day !== 'string') continue;
    if (min !== undefined && day < String(min)) throw new ArgumentError(name, say.tooSmall(name, min));
    if (max !== undefined && day > String(max)) throw new ArgumentError(name, say.tooLarge(name, max));
  }
}

function dayOf(word: string, { now, timeZone }: ArgContext): string {
  if (word !== 'today') return word;
  const format = new Intl.DateTimeFormat('en', {
    timeZone,
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    calendar: 'gregory',
  });
  const parts = Object.fromEntries(format.formatToParts(now).map(({ type, value }) => [type, value]));
  return `${parts.year}-${parts.month}-${parts.day}`;
}
