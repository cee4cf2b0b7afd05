import type { ErrorClass } from './run-words.ts';

/** What is known of a failure. */
export interface FailureFacts {
  /** Of a program. */
  exitCode?: number;
  /** Of an answer over HTTP. */
  httpStatus?: number;
  /** Name of what went wrong on the way, as programs and libraries call it: `ECONNRESET`, `TimeoutError`. */
  errorType?: string;
}

/** A template's own rules, `retry.on`. `http` may also have `4xx` and the like, for the statuses that have no rule of their own. */
export interface RetryRules {
  readonly exit: Readonly<Record<string, ErrorClass>>;
  readonly http: Readonly<Record<string, ErrorClass>>;
  readonly error: Readonly<Record<string, ErrorClass>>;
}

/** Exit codes with a meaning in every template: a passing fault, and a rate limit. */
export const EXIT_CLASSES: RetryRules['exit'] = { 75: 'transient', 76: 'rate_limited' };

/**
 * What a failure means: the template's rules first, then the general ones, else permanent. The most telling fact decides: an answer's
 * status before an error's name, that before an exit code.
 */
export function classify(facts: FailureFacts, rules: Partial<RetryRules> = {}): ErrorClass {
  return ruleFor(facts, rules) ?? ruleFor(facts, GENERAL) ?? 'permanent';
}

/** What the rules say; undefined where none fits. */
export function ruleFor(facts: FailureFacts, rules: Partial<RetryRules>): ErrorClass | undefined {
  const { httpStatus, errorType, exitCode } = facts;
  return (
    (httpStatus === undefined
      ? undefined
      : (own(rules.http, String(httpStatus)) ?? own(rules.http, `${Math.floor(httpStatus / 100)}xx`))) ??
    (errorType === undefined ? undefined : own(rules.error, errorType)) ??
    (exitCode === undefined ? undefined : own(rules.exit, String(exitCode)))
  );
}

/**
 * The pause that a `Retry-After` header asks for, milliseconds from `now`: whole seconds or an HTTP date (RFC 9110, section 10.2.3).
 * A date that has passed is 0; undefined for anything else. Not bounded: see `MAX_PAUSE_MS`.
 */
export function retryAfterMs(header: string, now: number): number | undefined {
  const text = header.trim();
  if (/^\d{1,12}$/.test(text)) return Number(text) * 1_000;
  // The oldest form names no zone; it is the same one.
  const at = HTTP_DATE.test(text) ? Date.parse(text.endsWith('GMT') ? text : `${text} GMT`) : Number.NaN;
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}

/** The longest pause that one report may ask for. */
export const MAX_PAUSE_MS = 86_400_000;

/** The three forms that RFC 9110 knows; `Date.parse` alone takes almost anything. */
const HTTP_DATE =
  /^(?:\w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} GMT|\w{6,9}, \d{2}-\w{3}-\d{2} \d{2}:\d{2}:\d{2} GMT|\w{3} \w{3} [ \d]\d \d{2}:\d{2}:\d{2} \d{4})$/;

const TRANSIENT_ERRORS = [
  'ECONNABORTED',
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ENETDOWN',
  'ENETRESET',
  'ENETUNREACH',
  'EPIPE',
  'ETIMEDOUT',
  'EAI_AGAIN',
  'TimeoutError',
  'UND_ERR_BODY_TIMEOUT',
  'UND_ERR_CONNECT_TIMEOUT',
  'UND_ERR_HEADERS_TIMEOUT',
  'UND_ERR_SOCKET',
] as const;

const GENERAL: RetryRules = {
  exit: EXIT_CLASSES,
  http: {
    408: 'transient',
    425: 'transient',
    429: 'rate_limited',
    500: 'transient',
    502: 'transient',
    503: 'transient',
    504: 'transient',
  },
  error: Object.fromEntries(TRANSIENT_ERRORS.map((name) => [name, 'transient' as const])),
};

/** Names come from programs: `constructor` has no rule. */
function own(table: Readonly<Record<string, ErrorClass>> | undefined, name: string): ErrorClass | undefined {
  return table !== undefined && Object.hasOwn(table, name) ? table[name] : undefined;
}
