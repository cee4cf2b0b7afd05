import { canonicalJson, sha256 } from '../ids.ts';
import { fillPlaces, onlyPlace } from '../places.ts';
import type { ArgValue, ErrorClass } from '../tasks/run-words.ts';
import type { ShellSpec } from './protocol.ts';

/**
 * What an agent does for a template: what its digest is taken of and what its owner can pin. Title, triggers, places, retries and the
 * like are the gateway's business and change nothing here. Both sides fill in arguments with the functions of this file.
 */
export interface RunContent {
  readonly id: string;
  readonly runtime: string;
  /** Empty for `http`. */
  readonly command: readonly string[];
  /** Null for `shell`. */
  readonly request: HttpRequest | null;
  readonly env: Readonly<Record<string, string>>;
  readonly secrets: readonly string[];
  readonly graceMs: number;
  readonly exitClasses: Readonly<Record<string, ErrorClass>>;
  readonly limits: { readonly outputBytes: number; memoryBytes?: number; cpuCores?: number; cpuTimeMs?: number };
  /** Names of the arguments, sorted. */
  readonly args: readonly string[];
  /** Those whose values must not begin with a dash, sorted. */
  readonly noDash: readonly string[];
}

/** A text that the agent puts together: fixed pieces, and secrets by name that only it knows. */
export type SecretText = ({ text: string } | { secret: string })[];

/** `spec` of the http runtime, with the arguments already in their places. */
export interface HttpSpec {
  method: string;
  url: string;
  headers: [name: string, value: SecretText][];
  body: string | null;
  /** Statuses that count as success: `204`, or `2xx` for the hundred. */
  expect: string[];
  /** Of the answer no more is read. */
  maxResponseBytes: number;
}

/** A call over HTTP with places for arguments. */
export interface HttpRequest {
  readonly method: string;
  /** Scheme and host are fixed. */
  readonly url: string;
  /** `{{name}}` and `{{secret NAME}}`. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: HttpBody | null;
  readonly expect: readonly string[];
  readonly maxResponseBytes: number;
}

/** Text with places, filled as it is (`text`) or URL-encoded (`form`), or JSON whose texts have places. */
export type HttpBody =
  | { readonly kind: 'text' | 'form'; readonly text: string }
  | { readonly kind: 'json'; readonly value: unknown };

export type Args = Readonly<Record<string, ArgValue>>;

/** A value that would change the meaning of what it is filled into. */
export class UnfitValue extends Error {
  readonly arg: string;

  constructor(arg: string, message: string) {
    super(message);
    this.name = 'UnfitValue';
    this.arg = arg;
  }
}

/** `sha256:<hex>`: the same for the same content, whatever the file looks like. */
export function digestOf(content: RunContent): string {
  return `sha256:${sha256(canonicalJson(content))}`;
}

/** The runtime's part of an assignment. @throws UnfitValue */
export function specOf(content: RunContent, args: Args): ShellSpec | HttpSpec {
  return content.request === null ? shellSpecOf(content, args) : httpSpecOf(content.request, args);
}

/**
 * What the agent starts: one element of the command stays one element, whatever the value contains. An element that is nothing but
 * the place of an argument without a value is left out.
 * @throws UnfitValue
 */
export function shellSpecOf(content: RunContent, args: Args): ShellSpec {
  const argv: string[] = [];
  for (const element of content.command) {
    const alone = onlyPlace(element);
    if (alone === undefined || Object.hasOwn(args, alone)) argv.push(fillPlaces(element, args));
  }
  const option = content.noDash.find((name) => Object.hasOwn(args, name) && String(args[name]).startsWith('-'));
  if (option !== undefined) throw new UnfitValue(option, `${option}: must not begin with -`);
  return { argv, env: { ...content.env }, graceMs: content.graceMs, exitClasses: { ...content.exitClasses } };
}

/** @throws UnfitValue where a value would lead out of the path that the template has */
export function httpSpecOf(request: HttpRequest, args: Args): HttpSpec {
  return {
    method: request.method,
    url: urlOf(request.url, args),
    headers: headersOf(request, args),
    body: bodyOf(request.body, args),
    expect: [...request.expect],
    maxResponseBytes: request.maxResponseBytes,
  };
}

function urlOf(template: string, args: Args): string {
  const url = fillPlaces(template, args, encodeURIComponent);
  const [path] = url.split(/[?#]/, 1);
  // Dots are what no encoding hides: a URL library resolves `%2e%2e`, too.
  const isLeaving = path!.split('/').some((segment) => /^(\.|%2e){1,2}$/i.test(segment));
  if (isLeaving) throw new UnfitValue('', 'a value is no part of a path (. or ..)');
  return url;
}

const SECRET = /\{\{\s*secret\s+([A-Z_][A-Z0-9_]*)\s*\}\}/;

/** The pieces of a header's value; what an argument contains is never looked at again. */
function headersOf({ headers, body }: HttpRequest, args: Args): HttpSpec['headers'] {
  const filled = Object.entries(headers).map(([name, value]): [string, SecretText] => [
    name,
    value
      .split(new RegExp(SECRET.source, 'g'))
      .map((piece, index) =>
        index % 2 === 1 ? { secret: piece } : { text: fillPlaces(piece, args, encodeURIComponent) },
      )
      .filter((piece) => !('text' in piece) || piece.text !== ''),
  ]);
  const type = body && CONTENT_TYPES[body.kind];
  const hasType = filled.some(([name]) => name.toLowerCase() === 'content-type');
  return type && !hasType ? [...filled, ['content-type', [{ text: type }]]] : filled;
}

/** The names of the secrets in a header's value. */
export function secretsIn(value: string): string[] {
  return [...value.matchAll(new RegExp(SECRET.source, 'g'))].map((match) => match[1]!);
}

/** The value without the places of secrets. */
export function withoutSecrets(value: string): string {
  return value.replace(new RegExp(SECRET.source, 'g'), '');
}

const CONTENT_TYPES: Readonly<Record<HttpBody['kind'], string>> = {
  json: 'application/json',
  form: 'application/x-www-form-urlencoded',
  text: 'text/plain; charset=utf-8',
};

function bodyOf(body: HttpBody | null, args: Args): string | null {
  switch (body?.kind) {
    case undefined:
      return null;
    case 'json':
      return JSON.stringify(filledJson(body.value, args));
    case 'form':
      return fillPlaces(body.text, args, encodeURIComponent);
    case 'text':
      return fillPlaces(body.text, args);
  }
}

/** A text that is only the place of an argument becomes the value itself, a number stays one; null where there is no value. */
function filledJson(value: unknown, args: Args): unknown {
  if (typeof value === 'string') {
    const alone = onlyPlace(value);
    return alone === undefined ? fillPlaces(value, args) : Object.hasOwn(args, alone) ? args[alone] : null;
  }
  if (Array.isArray(value)) return value.map((item) => filledJson(item, args));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, filledJson(item, args)]));
}
