import {
  type Document,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  parseDocument,
  visit,
  type YAMLError,
  type YAMLMap,
} from 'yaml';
import { digestOf } from '../agents/run-content.ts';
import { messageOf } from '../errors.ts';
import { canonicalJson, sha256 } from '../ids.ts';
import { contentFor } from './spec.ts';
import { checkContent } from './template-checks.ts';
import { isDashRefused } from './template-command.ts';
import { type Issue, parseContent } from './template-issues.ts';
import type { ArgSpec, Template, TemplateProblem, Texts } from './template-model.ts';
import { isPathSegment, requestOf } from './template-request.ts';
import type { TemplateContent } from './template-schema.ts';

/** A larger file is no template. */
export const MAX_FILE_BYTES = 256 * 1024;

export type TemplateReading = { readonly template: Template } | { readonly problems: readonly TemplateProblem[] };

/** Reads the text of one template file: the template, or everything that is wrong with it, each with its place. Never throws. */
export function readTemplate(file: string, text: string): TemplateReading {
  const found = read(text);
  if ('template' in found) return found;
  return {
    problems: found.faults.map(({ offset, field, message }) => ({ file, ...found.place(offset), field, message })),
  };
}

/** A problem of the file as a whole. */
export function fileProblem(file: string, message: string): TemplateProblem {
  return { file, line: 1, column: 1, field: '', message };
}

interface Fault {
  offset: number;
  field: string;
  message: string;
}

type Place = (offset: number) => { line: number; column: number };

const MAX_ALIASES = 100;
const MAX_DEPTH = 64;

function read(text: string): { template: Template } | { faults: Fault[]; place: Place } {
  const lines = new LineCounter();
  const place: Place = (offset) => {
    const { line, col } = lines.linePos(offset);
    return { line: Math.max(1, line), column: Math.max(1, col) };
  };
  if (isTooDeep(text))
    return { faults: [{ offset: 0, field: '', message: `is nested more than ${MAX_DEPTH} levels deep` }], place };
  // uniqueKeys: the library compares every key with every other; `nodeFaults` does it in one pass.
  const doc = parseDocument(text, { lineCounter: lines, ...YAML_OPTIONS });
  const faults = [...doc.errors, ...doc.warnings].map(syntaxFault);
  if (faults.length === 0) faults.push(...nodeFaults(doc));
  if (faults.length > 0) return { faults: faults.slice(0, MAX_FAULTS), place };
  const data = dataOf(doc);
  if (typeof data === 'string') return { faults: [{ offset: 0, field: '', message: data }], place };
  const checked = contentOf(data.value);
  return 'template' in checked
    ? checked
    : { faults: checked.issues.slice(0, MAX_FAULTS).map((issue) => faultOf(issue, doc)), place };
}

const MAX_FAULTS = 50;
const YAML_OPTIONS = {
  stringKeys: true,
  uniqueKeys: false,
  prettyErrors: false,
  schema: 'core',
  resolveKnownTags: false,
  logLevel: 'error',
} as const;

/** The parser recurses; so many levels are no template. Counts brackets and runs of `- - -` without looking at quotes. */
function isTooDeep(text: string): boolean {
  let depth = 0;
  for (const char of text) {
    if (char === '[' || char === '{') depth += 1;
    else if ((char === ']' || char === '}') && depth > 0) depth -= 1;
    if (depth > MAX_DEPTH) return true;
  }
  return new RegExp(`(?:[-?:][ \\t]+){${MAX_DEPTH}}`).test(text);
}

function syntaxFault({ code, message, pos }: YAMLError): Fault {
  const sentence =
    code === 'MULTIPLE_DOCS' ? 'holds more than one document; a file is one template' : `is not valid YAML: ${message}`;
  return { offset: pos[0], field: '', message: sentence };
}

/** What the library lets pass or reports without a place: keys that are there twice or mean something to JavaScript, loose aliases. */
function nodeFaults(doc: Document.Parsed): Fault[] {
  const faults: Fault[] = [];
  const anchors = new Set<string>();
  visit(doc, {
    Alias: (_key, { source, range }) => {
      const message = `is an alias of ${source}, which is no anchor above it`;
      if (!anchors.has(source)) faults.push({ offset: range?.[0] ?? 0, field: '', message });
    },
    Value: (_key, node) => {
      if (node.anchor !== undefined) anchors.add(node.anchor);
      if (isMap(node)) faults.push(...keyFaults(node));
    },
  });
  return faults;
}

function keyFaults(map: YAMLMap): Fault[] {
  const seen = new Set<unknown>();
  return map.items.flatMap(({ key }) => {
    const name = isScalar(key) ? key.value : key;
    const message = seen.has(name)
      ? 'is there twice'
      : FORBIDDEN_KEYS.has(name)
        ? 'is not allowed as a name'
        : undefined;
    seen.add(name);
    return message === undefined ? [] : [{ offset: offsetOf(key), field: String(name), message }];
  });
}

const FORBIDDEN_KEYS: ReadonlySet<unknown> = new Set(['__proto__', 'constructor', 'prototype']);

/** The content as plain data, or why there is none. */
function dataOf(doc: Document.Parsed): { value: unknown } | string {
  if (doc.contents === null) return 'is empty';
  try {
    return { value: doc.toJS({ maxAliasCount: MAX_ALIASES }) as unknown };
  } catch (error) {
    return /alias count/.test(messageOf(error))
      ? `repeats its anchors more than ${MAX_ALIASES} times`
      : `is not valid YAML: ${messageOf(error)}`;
  }
}

function contentOf(data: unknown): { template: Template } | { issues: Issue[] } {
  const parsed = parseContent(data);
  if ('issues' in parsed) return parsed;
  const issues = checkContent(parsed.content);
  return issues.length > 0
    ? { issues }
    : { template: templateOf(parsed.content, `sha256:${sha256(canonicalJson(data))}`) };
}

function faultOf({ path, message, atKey }: Issue, doc: Document.Parsed): Fault {
  return { offset: locate(doc, path, atKey === true), field: fieldText(path), message };
}

/** Where the value (or the key) is, as near as the file has it: of something missing, what should hold it. */
function locate(doc: Document.Parsed, path: readonly PropertyKey[], atKey: boolean): number {
  let node: unknown = doc.contents;
  let offset = offsetOf(node);
  for (const step of path) {
    const next = stepInto(node, step);
    if (!next) return offset;
    offset = next.keyOffset ?? offsetOf(next.value);
    node = next.value;
  }
  const isValueWanted = !atKey && node !== null && node !== undefined;
  return isValueWanted ? offsetOf(node) : offset;
}

/** What lies at a key or an index. An alias is not followed: its own place is the one to show. */
function stepInto(node: unknown, step: PropertyKey): { keyOffset?: number; value: unknown } | undefined {
  if (isMap(node)) {
    const pair = node.items.find(({ key }) => isScalar(key) && key.value === String(step));
    return pair && { keyOffset: offsetOf(pair.key), value: pair.value };
  }
  const item = isSeq(node) ? node.items[Number(step)] : undefined;
  return item === undefined ? undefined : { value: item };
}

function offsetOf(node: unknown): number {
  const range = (node as { range?: readonly number[] | null } | null)?.range;
  return range?.[0] ?? 0;
}

function fieldText(path: readonly PropertyKey[]): string {
  return path
    .map((step, index) => (typeof step === 'number' ? `[${step}]` : `${index === 0 ? '' : '.'}${String(step)}`))
    .join('');
}

function templateOf(content: TemplateContent, digest: string): Template {
  const { retry } = content;
  const template: Omit<Template, 'runDigest'> = {
    id: content.id,
    title: titleOf(content),
    triggers: content.triggers,
    args: argsOf(content),
    runtime: content.runtime,
    command: content.command ?? [],
    request: requestOf(content),
    env: content.env,
    secrets: content.secrets,
    pool: content.pool ?? 'default',
    agent: content.agent ?? null,
    labels: content.labels ?? null,
    turn: content.turn,
    priority: content.priority,
    timeoutMs: content.timeout,
    graceMs: content.grace,
    quietAfterMs: content.quietAfter === 'off' ? null : content.quietAfter,
    ttlMs: content.ttl ?? null,
    runLimits: runLimitsOf(content),
    retry: retryOf(content),
    onLost: content.onLost,
    exitClasses: retry.on.exit,
    breaker: breakerOf(content),
    lane: content.lane ?? null,
    limits: {
      concurrency: content.concurrency ?? null,
      rate: content.rate ? { perMs: content.rate.per, max: content.rate.max } : null,
    },
    serialKey: content.serialKey ?? null,
    idempotencyKey: content.idempotencyKey ?? null,
    notify: content.notify ?? null,
    summary: content.summary,
    roles: content.roles ?? [],
    digest,
  };
  return deepFreeze<Template>({ ...template, runDigest: digestOf(contentFor(template)) });
}

/** Only what is set, so that nothing else is sent with every assignment. */
function runLimitsOf({ limits: { output, memory, cpu, cpuTime } }: TemplateContent): Template['runLimits'] {
  return {
    outputBytes: output,
    ...(memory !== undefined && { memoryBytes: memory }),
    ...(cpu !== undefined && { cpuCores: cpu }),
    ...(cpuTime !== undefined && { cpuTimeMs: cpuTime }),
  };
}

function retryOf({ retry: { max, base, factor, cap, jitter, on } }: TemplateContent): Template['retry'] {
  const policy = { max, baseMs: base, factor, capMs: cap, jitter };
  const hasRules = Object.keys(on.http).length + Object.keys(on.error).length > 0;
  return hasRules ? { ...policy, on: { http: on.http, error: on.error } } : policy;
}

function breakerOf({ breaker }: TemplateContent): Template['breaker'] {
  if (!breaker) return null;
  const { window: windowMs, cooldown: cooldownMs, ...rest } = breaker;
  return { ...rest, windowMs, cooldownMs };
}

function titleOf({ id, title }: TemplateContent): Texts {
  return { en: title?.en ?? title?.zh ?? id, zh: title?.zh ?? title?.en ?? id };
}

function argsOf(content: TemplateContent): Record<string, ArgSpec> {
  const out = Object.create(null) as Record<string, ArgSpec>;
  for (const [name, { allowDash: _allowDash, ...spec }] of Object.entries(content.args)) {
    const noDots = isPathSegment(name, content.request?.url);
    out[name] = { ...spec, noDash: isDashRefused(name, content), ...(noDots && { noDots }) };
  }
  return out;
}

function deepFreeze<T>(value: T): T {
  if (value !== null && typeof value === 'object' && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const inner of Object.values(value)) deepFreeze(inner);
  }
  return value;
}
