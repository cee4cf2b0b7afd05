import { AGENT_ID, type ReportRequest, WIRE_LIMITS } from '../agents/protocol.ts';
import type { Submission } from '../flows/submit.ts';
import { NOTIFY_POLICIES } from '../tasks/states.ts';

/**
 * The common bodies of the two busiest routes, recognised by hand: what these accept, the schemas accept unchanged (a test compares
 * them on random bodies), in a fraction of the time. Everything else, and every error, is the schemas' to judge.
 */

/** One task that says no more than what to run, for whom. */
export function plainSubmission(body: unknown): Submission | undefined {
  return isPlainSubmission(body) ? (body as Submission) : undefined;
}

/** A batch of tasks that say no more than what to run, for whom. */
export function plainSubmissions(body: unknown, limit: number): Submission[] | undefined {
  return isList(body, limit, isPlainSubmission) ? (body as Submission[]) : undefined;
}

/** Reports of nothing but success. */
export function plainSuccesses(body: unknown): ReportRequest | undefined {
  return hasOnly(body, REQUEST, ['agentId', 'instanceId', 'reports']) ? (body as unknown as ReportRequest) : undefined;
}

type Fields = Readonly<Record<string, (value: unknown) => boolean>>;

const token = text(1, 128);

const SUBMISSION: Fields = fields({
  template: text(1, 48),
  args: isArgs,
  notify: (value) => (NOTIFY_POLICIES as readonly unknown[]).includes(value),
  sessionKey: text(1, 256),
  idempotencyKey: text(1, 256),
});

const SUCCESS: Fields = fields({
  type: (value) => value === 'succeeded',
  runId: text(1, 32),
  leaseToken: token,
  seq: integer(0, Number.MAX_SAFE_INTEGER),
  at: (value) => typeof value === 'number',
  summary: text(0, WIRE_LIMITS.summary),
  exitCode: integer(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER),
});

const REQUEST: Fields = fields({
  agentId: (value) => typeof value === 'string' && AGENT_ID.test(value),
  instanceId: token,
  reports: (value) => isList(value, 1_000, isPlainSuccess),
  next: integer(1, 1024),
});

/** Without a prototype, so that no name is known but these. */
function fields(known: Fields): Fields {
  return Object.assign(Object.create(null) as Fields, known);
}

function isPlainSubmission(value: unknown): boolean {
  return hasOnly(value, SUBMISSION, ['template', 'args']);
}

function isPlainSuccess(value: unknown): boolean {
  return hasOnly(value, SUCCESS, ['type', 'runId', 'leaseToken', 'seq', 'summary']);
}

function hasOnly(value: unknown, known: Fields, required: readonly string[]): boolean {
  if (!isObject(value)) return false;
  for (const key in value) if (!known[key]?.(value[key])) return false;
  return required.every((key) => value[key] !== undefined);
}

function isArgs(value: unknown): boolean {
  if (!isObject(value)) return false;
  for (const key in value) {
    const type = typeof value[key];
    if (type !== 'string' && type !== 'number' && type !== 'boolean') return false;
    if (key.length > 64 || key === '__proto__') return false;
  }
  return true;
}

function isList(value: unknown, limit: number, isItem: (item: unknown) => boolean): boolean {
  return Array.isArray(value) && value.length >= 1 && value.length <= limit && value.every(isItem);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function text(min: number, max: number): (value: unknown) => boolean {
  return (value) => typeof value === 'string' && value.length >= min && value.length <= max;
}

function integer(min: number, max: number): (value: unknown) => boolean {
  return (value) => Number.isInteger(value) && (value as number) >= min && (value as number) <= max;
}
