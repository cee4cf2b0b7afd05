import { rootCertificates } from 'node:tls';
import { type Dispatcher, Pool, ProxyAgent } from 'undici';
import { AppError, ERROR_CODES, type ErrorCode, messageOf } from '../../errors.ts';
import type { ProblemJson } from '../protocol.ts';

/**
 * What to do after a failed call; the one place that decides it.
 * - `again`: unreachable, overloaded or broken (network, 429, 5xx): the same call later, for ever
 * - `slow`: refused for a reason that a person must remove (401, 403, a wrong address): the same call, rarely and loudly
 * - `unknown`: the gateway does not know this instance (any more): register, then go on
 * - `replaced`: a newer instance has taken over: this one ends for good
 * - `refused`: this very body is not acceptable (400, 413, 422): sending it again is useless
 */
export type Verdict = 'again' | 'slow' | 'unknown' | 'replaced' | 'refused';

export class CallFailed extends AppError {
  readonly verdict: Verdict;
  /** What the gateway asked for by `Retry-After`, milliseconds. */
  readonly retryAfterMs: number | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    verdict: Verdict,
    options: { cause?: unknown; retryAfterMs?: number } = {},
  ) {
    super(code, message, { cause: options.cause });
    this.verdict = verdict;
    this.retryAfterMs = options.retryAfterMs;
  }
}

export interface ClientOptions {
  gatewayUrl: string;
  token: string;
  ca?: string;
  proxy?: string;
  /** On top of the wait that a call asks for, milliseconds. */
  timeoutMs?: number;
}

export interface CallOptions {
  /** How long the gateway may hold the answer, milliseconds. */
  waitMs?: number;
  signal?: AbortSignal;
}

const TIMEOUT_MS = 20_000;
const CONNECT_TIMEOUT_MS = 10_000;

/** JSON over kept-alive connections to the gateway. */
export class GatewayClient {
  readonly #dispatcher: Dispatcher;
  readonly #origin: string;
  readonly #base: string;
  readonly #headers: Record<string, string>;
  readonly #timeoutMs: number;

  constructor(options: ClientOptions) {
    const url = new URL(options.gatewayUrl);
    this.#origin = url.origin;
    this.#base = url.pathname.replace(/\/+$/, '');
    this.#headers = {
      authorization: `Bearer ${options.token}`,
      'content-type': 'application/json',
      accept: 'application/json',
    };
    this.#timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
    this.#dispatcher = dispatcherFor(url.origin, options);
  }

  /** @param body JSON text. @throws CallFailed, or the signal's reason where it was aborted */
  async post<T>(path: string, body: string, options: CallOptions = {}): Promise<T> {
    const limitMs = (options.waitMs ?? 0) + this.#timeoutMs;
    let status: number;
    let text: string;
    let retryAfter: string | string[] | undefined;
    try {
      const answer = await this.#dispatcher.request({
        origin: this.#origin,
        path: this.#base + path,
        method: 'POST',
        headers: this.#headers,
        body,
        headersTimeout: limitMs,
        bodyTimeout: this.#timeoutMs,
        signal: options.signal,
      });
      status = answer.statusCode;
      retryAfter = answer.headers['retry-after'];
      text = await answer.body.text();
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new CallFailed('unreachable', `cannot reach the gateway at ${this.#origin}: ${causeOf(error)}`, 'again', {
        cause: error,
      });
    }
    if (status === 204) return {} as T;
    if (status >= 200 && status < 300) return parse<T>(text, path);
    throw refusal(status, text, path, retryAfter);
  }

  /** Ends open calls, too. */
  async close(): Promise<void> {
    await this.#dispatcher.destroy();
  }
}

function dispatcherFor(origin: string, options: ClientOptions): Dispatcher {
  const tls = options.ca ? { ca: [...rootCertificates, options.ca] } : {};
  const common = { keepAliveTimeout: 60_000, pipelining: 1 };
  if (options.proxy) return new ProxyAgent({ ...common, uri: options.proxy, requestTls: tls, proxyTls: tls });
  return new Pool(origin, { ...common, connect: { ...tls, timeout: CONNECT_TIMEOUT_MS } });
}

function parse<T>(text: string, path: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (error) {
    throw new CallFailed('unavailable', `the answer of ${path} is not JSON (a proxy in between?)`, 'again', {
      cause: error,
    });
  }
}

function refusal(status: number, text: string, path: string, retryAfter: string | string[] | undefined): CallFailed {
  const problem = problemOf(text);
  const code =
    problem?.code !== undefined && problem.code in ERROR_CODES ? (problem.code as ErrorCode) : codeOf(status);
  const said = problem?.detail ?? problem?.title ?? `HTTP ${status}`;
  return new CallFailed(code, `${path} answered ${status}: ${said.slice(0, 500)}`, verdictOf(status, problem?.code), {
    retryAfterMs: secondsToMs(retryAfter),
  });
}

function verdictOf(status: number, code: string | undefined): Verdict {
  if (status >= 500 || status === 429 || status === 408) return 'again';
  if (code === 'session_replaced') return 'replaced';
  if (status === 400 || status === 413 || status === 422) return 'refused';
  // Only the gateway itself can say that it does not know us; a bare 404 is a wrong address.
  if (code === 'not_found' || code === 'conflict') return 'unknown';
  return 'slow';
}

function codeOf(status: number): ErrorCode {
  const match = Object.entries(ERROR_CODES).find(([, entry]) => entry.status === status);
  return match ? (match[0] as ErrorCode) : status >= 500 ? 'unavailable' : 'invalid_request';
}

function problemOf(text: string): Partial<ProblemJson> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Partial<ProblemJson>) : undefined;
  } catch {
    return undefined;
  }
}

function secondsToMs(header: string | string[] | undefined): number | undefined {
  const seconds = typeof header === 'string' ? Number(header) : Number.NaN;
  return Number.isFinite(seconds) && seconds >= 0 ? Math.min(seconds, 3_600) * 1_000 : undefined;
}

/** undici wraps what the socket said; its code is what helps. */
function causeOf(error: unknown): string {
  const { code } = (error ?? {}) as NodeJS.ErrnoException;
  return code ?? messageOf(error);
}
