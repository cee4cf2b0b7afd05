import { rootCertificates } from 'node:tls';
import { type Dispatcher, Pool, ProxyAgent } from 'undici';
import { AppError, ERROR_CODES, type ErrorCode, messageOf } from '../../errors.ts';
import { postText } from '../../http-call.ts';
import { type ProblemJson, retryAfterMs } from '../protocol.ts';

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

  constructor(
    code: ErrorCode,
    message: string,
    verdict: Verdict,
    options: { cause?: unknown; retryAfterMs?: number } = {},
  ) {
    super(code, message, options);
    this.verdict = verdict;
  }
}

export interface ClientOptions {
  gatewayUrl: string;
  /** Absent: only for joining. */
  token?: string;
  /** PEM text of certificates that are trusted besides the usual ones. */
  ca?: string;
  /** The gateway is reached by a tunnel (CONNECT) through this one; its user and password may be in the address. */
  proxy?: string;
  /** On top of the wait that a call asks for, milliseconds. */
  timeoutMs?: number;
}

export interface CallOptions {
  /** How long the gateway may hold the answer, milliseconds. */
  waitMs?: number;
  signal?: AbortSignal;
}

export interface StreamAnswer {
  /** 200: the whole, 206: from the byte that was asked for. */
  status: 200 | 206;
  body: AsyncIterable<Uint8Array>;
}

const TIMEOUT_MS = 20_000;
const CONNECT_TIMEOUT_MS = 10_000;
const LONGEST_RETRY_AFTER_MS = 3_600_000;

type Headers = Dispatcher.ResponseData['headers'];

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
      ...(options.token === undefined ? {} : { authorization: `Bearer ${options.token}` }),
      'content-type': 'application/json',
      accept: 'application/json',
    };
    this.#timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
    this.#dispatcher = dispatcherFor(url.origin, options);
  }

  /** @param body JSON text. @throws CallFailed, or the signal's reason where it was aborted */
  async post<T>(path: string, body: string, options: CallOptions = {}): Promise<T> {
    const limitMs = (options.waitMs ?? 0) + this.#timeoutMs;
    const { status, text, headers } = await this.#reach(options.signal, () =>
      postText(this.#dispatcher, {
        origin: this.#origin,
        path: this.#base + path,
        headers: this.#headers,
        body,
        headersTimeout: limitMs,
        bodyTimeout: this.#timeoutMs,
        signal: options.signal,
      }),
    );
    if (status === 204) return {} as T;
    if (status >= 200 && status < 300) return parse<T>(text, path);
    throw refusal(status, text, path, headers);
  }

  /**
   * A body of any size, from byte `from` on where the gateway can (status 206). What breaks off while it is read is thrown by the body
   * as it is. @throws CallFailed, or the signal's reason where it was aborted
   */
  async stream(path: string, options: { from: number; signal?: AbortSignal }): Promise<StreamAnswer> {
    const { statusCode, headers, body } = await this.#reach(options.signal, () =>
      this.#dispatcher.request({
        origin: this.#origin,
        path: this.#base + path,
        method: 'GET',
        headers: { ...this.#headers, ...(options.from > 0 && { range: `bytes=${options.from}-` }) },
        headersTimeout: this.#timeoutMs,
        bodyTimeout: this.#timeoutMs,
        signal: options.signal,
      }),
    );
    if (statusCode === 200 || statusCode === 206) return { status: statusCode, body };
    throw refusal(statusCode, await this.#reach(options.signal, () => body.text()), path, headers);
  }

  async #reach<T>(signal: AbortSignal | undefined, call: () => Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new CallFailed('unreachable', `cannot reach the gateway at ${this.#origin}: ${causeOf(error)}`, 'again', {
        cause: error,
      });
    }
  }

  /** Ends open calls, too. */
  async close(): Promise<void> {
    await this.#dispatcher.destroy();
  }
}

function dispatcherFor(origin: string, options: ClientOptions): Dispatcher {
  const connect = { ...trust(options.ca), timeout: CONNECT_TIMEOUT_MS };
  const common = { keepAliveTimeout: 60_000, pipelining: 1 };
  if (options.proxy) return new ProxyAgent({ ...common, uri: options.proxy, requestTls: connect, proxyTls: connect });
  return new Pool(origin, { ...common, connect });
}

/** TLS options that trust these certificates and the usual ones. */
export function trust(ca: string | undefined): { ca?: string[] } {
  return ca === undefined ? {} : { ca: [...rootCertificates, ca] };
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

function refusal(status: number, text: string, path: string, headers: Headers): CallFailed {
  const problem = problemOf(text);
  const code =
    problem?.code !== undefined && problem.code in ERROR_CODES ? (problem.code as ErrorCode) : codeOf(status);
  const said = problem?.detail ?? problem?.title ?? `HTTP ${status}`;
  return new CallFailed(code, `${path} answered ${status}: ${said.slice(0, 500)}`, verdictOf(status, problem?.code), {
    retryAfterMs: pauseAskedFor(headers),
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

/** Seconds or a date; a date is measured by the clock of whoever wrote it. */
function pauseAskedFor(headers: Headers): number | undefined {
  const { 'retry-after': wanted, date } = headers;
  if (typeof wanted !== 'string') return undefined;
  const ms = retryAfterMs(wanted, Date.parse(String(date)));
  return ms === undefined || Number.isNaN(ms) ? undefined : Math.min(ms, LONGEST_RETRY_AFTER_MS);
}

/**
 * What went wrong on the way, and what helps where that is known. undici wraps what the socket said; its code is what helps, unless
 * it is undici's own.
 */
export function causeOf(error: unknown): string {
  const { code } = (error ?? {}) as NodeJS.ErrnoException;
  if (code === undefined || code.startsWith('UND_ERR_')) return messageOf(error);
  return isDistrust(code) ? `${code}, its certificate is not trusted (AGENT_CA_FILE names a CA to trust)` : code;
}

/** Codes of TLS for a certificate that no known authority vouches for. */
function isDistrust(code: string): boolean {
  return /^(UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_SELF_SIGNED_)/.test(code);
}
