import { messageOf } from '../../../errors.ts';
import { classify, type ErrorClass, MAX_PAUSE_MS, retryAfterMs, WIRE_LIMITS } from '../../protocol.ts';
import type { HttpSpec } from '../../run-content.ts';
import { cutText } from './capture.ts';
import { ADDRESS_REFUSED } from './http-address.ts';
import type { ReadAnswer } from './http-answer.ts';
import type { RunEnd } from './runtime.ts';

/** A call that was answered. */
export interface CallEnd extends ReadAnswer {
  spec: HttpSpec;
  /** Whom it was that answered, after redirects. */
  url: URL;
  status: number;
  headers: Record<string, string | string[] | undefined>;
}

const CUT_NOTE = '\n[… more was not read …]';
const SHOWN_OF_ERROR = 1_000;
/** What a server will not do the next time either. */
const NEVER = new Set([501, 505]);

/** What an answer means. The template's own rules for its status (`retry.on.http`) are the gateway's. */
export function verdictOnCall(end: CallEnd): RunEnd {
  const { status, spec, text, isCut } = end;
  const shown = cutText(text.trimEnd(), WIRE_LIMITS.summary - CUT_NOTE.length) + (isCut ? CUT_NOTE : '');
  if (isExpected(status, spec.expect))
    return { type: 'succeeded', summary: shown, outputs: { status: String(status) }, exitCode: 0 };
  const pause = pauseMs(end);
  const errorClass = classOf(status, pause);
  const said = cutText(text.trimEnd(), SHOWN_OF_ERROR);
  return {
    type: 'failed',
    errorClass,
    error: cutText([sentence(end), said].filter((line) => line !== '').join('\n'), WIRE_LIMITS.error),
    ...(shown !== '' && { summary: shown }),
    ...(errorClass === 'rate_limited' && pause !== undefined && { retryAfterMs: pause }),
    ...(status >= 300 && { httpStatus: status }),
  };
}

/** A call that was not answered, or not to its end. Messages never hold the address's query or a header. */
export function notReached(error: unknown, { method, url }: HttpSpec): RunEnd {
  const { code, name } = innermost(error);
  const { host, pathname } = new URL(url);
  if (code === ADDRESS_REFUSED) return { type: 'failed', errorClass: 'permanent', error: messageOf(innermost(error)) };
  const errorType = (code ?? name).slice(0, 64);
  return {
    type: 'failed',
    errorClass: classify({ errorType }),
    error: cutText(`${method} ${host}${pathname}: no answer (${errorType})`, WIRE_LIMITS.error),
    errorType,
  };
}

function isExpected(status: number, expect: readonly string[]): boolean {
  return expect.includes(String(status)) || expect.includes(`${Math.floor(status / 100)}xx`);
}

function sentence({ status, spec, headers, url }: CallEnd): string {
  const what = `${spec.method} ${url.host}${url.pathname}: HTTP ${status}`;
  const { location } = headers;
  if (status < 300 || status >= 400 || typeof location !== 'string' || !URL.canParse(location, url.href)) return what;
  const target = new URL(location, url);
  return `${what}, a redirect to ${target.origin}${target.pathname} that is not followed`;
}

function classOf(status: number, pause: number | undefined): ErrorClass {
  // With Retry-After it is the server's own pause, which uses up no start.
  if (status === 503 && pause !== undefined) return 'rate_limited';
  return status >= 500 && !NEVER.has(status) ? 'transient' : classify({ httpStatus: status });
}

function pauseMs({ headers }: CallEnd): number | undefined {
  const header = headers['retry-after'];
  const ms = typeof header === 'string' ? retryAfterMs(header, Date.now()) : undefined;
  return ms === undefined ? undefined : Math.min(ms, MAX_PAUSE_MS);
}

/** Libraries wrap what the socket said; a failed attempt at several addresses is many errors in one. */
function innermost(error: unknown): NodeJS.ErrnoException {
  let current = (error instanceof Error ? error : new Error(messageOf(error))) as NodeJS.ErrnoException;
  for (let depth = 0; depth < 5; depth += 1) {
    const inner = (current as { errors?: unknown[] }).errors?.[0] ?? current.cause;
    if (!(inner instanceof Error)) break;
    current = inner;
  }
  return current;
}
