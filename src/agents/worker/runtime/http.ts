import { rootCertificates } from 'node:tls';
import { Agent, type Dispatcher } from 'undici';
import { messageOf } from '../../../errors.ts';
import type { Log } from '../../../log.ts';
import type { HttpSpec } from '../../run-content.ts';
import { type AddressRules, addressRules } from './http-address.ts';
import { readAnswer } from './http-answer.ts';
import { type CallEnd, notReached, verdictOnCall } from './http-verdict.ts';
import { type Job, type RunEnd, type Runtime, type StopReason, stoppedEnd } from './runtime.ts';

export interface HttpRuntimeOptions {
  /** AGENT_HTTP_ALLOW: where calls may go beside public addresses. */
  httpAllow: readonly string[];
  /** PEM text of certificates that are trusted besides the usual ones. */
  ca?: string;
  log: Log;
  /** For tests. */
  rules?: AddressRules;
}

const CONNECT_TIMEOUT_MS = 10_000;
const MAX_REDIRECTS = 5;
const MAX_RESPONSE_BYTES = 1024 * 1024;

/** The `http` runtime: one call for each run, from the agent's own network, only where its owner lets it go. */
export class HttpRuntime implements Runtime {
  readonly #options: HttpRuntimeOptions;
  readonly #rules: AddressRules;
  #dispatchers: { named: Dispatcher; checked: Dispatcher } | undefined;

  constructor(options: HttpRuntimeOptions) {
    this.#options = options;
    this.#rules = options.rules ?? addressRules(options.httpAllow);
  }

  async run(job: Job): Promise<RunEnd> {
    if (job.signal.aborted) return stoppedEnd(job.signal.reason as StopReason);
    const spec = readSpec(job.assignment.spec);
    if (typeof spec === 'string') return failed(spec);
    const headers = headersOf(spec, job);
    if (typeof headers === 'string') return failed(headers);
    try {
      return await this.#call(spec, headers, job);
    } catch (error) {
      if (job.signal.aborted) return stoppedEnd(job.signal.reason as StopReason);
      return notReached(error, spec);
    }
  }

  async #call(spec: HttpSpec, headers: Record<string, string>, job: Job): Promise<RunEnd> {
    const startedAt = performance.now();
    let step: Step = { url: new URL(spec.url), method: spec.method, body: spec.body };
    for (let redirects = 0; ; redirects += 1) {
      const verdict = this.#rules.verdictOn(step.url);
      if (typeof verdict === 'object') return failed(verdict.refusal);
      const answer = await this.#request(step, headers, verdict, job);
      const next = redirects < MAX_REDIRECTS ? followed(step, answer) : undefined;
      if (next) {
        await answer.body.dump({ limit: MAX_RESPONSE_BYTES, signal: job.signal });
        step = next;
        continue;
      }
      const read = await readAnswer(answer, Math.min(spec.maxResponseBytes, MAX_RESPONSE_BYTES), job);
      const end: CallEnd = { ...read, spec, status: answer.statusCode, headers: answer.headers, url: step.url };
      tell(job, end, performance.now() - startedAt);
      return verdictOnCall(end);
    }
  }

  #request(
    step: Step,
    headers: Record<string, string>,
    verdict: 'named' | 'checked',
    job: Job,
  ): Promise<Dispatcher.ResponseData> {
    this.#dispatchers ??= dispatchersFor(this.#rules, this.#options.ca);
    const hasBody = step.body !== null;
    return this.#dispatchers[verdict].request({
      origin: step.url.origin,
      path: step.url.pathname + step.url.search,
      method: step.method as Dispatcher.HttpMethod,
      headers: hasBody ? headers : withoutContentType(headers),
      body: step.body,
      // The run has a time limit of its own.
      headersTimeout: 0,
      bodyTimeout: 0,
      signal: job.signal,
    });
  }
}

interface Step {
  url: URL;
  method: string;
  body: string | null;
}

function dispatchersFor(rules: AddressRules, ca: string | undefined): { named: Dispatcher; checked: Dispatcher } {
  const tls = ca === undefined ? {} : { ca: [...rootCertificates, ca] };
  const connect = { ...tls, timeout: CONNECT_TIMEOUT_MS };
  const common = { keepAliveTimeout: 4_000, pipelining: 1, maxRedirections: 0 };
  return {
    named: new Agent({ ...common, connect }),
    checked: new Agent({ ...common, connect: { ...connect, lookup: rules.lookup } }),
  };
}

/** Where a redirect leads on the same server; undefined for any other answer, and for other servers, which get neither headers nor body. */
function followed(step: Step, { statusCode, headers }: Dispatcher.ResponseData): Step | undefined {
  const { location } = headers;
  if (![301, 302, 303, 307, 308].includes(statusCode) || typeof location !== 'string') return undefined;
  if (!URL.canParse(location, step.url.href)) return undefined;
  const url = new URL(location, step.url);
  if (url.origin !== step.url.origin || url.username !== '' || url.password !== '') return undefined;
  const isReading = step.method === 'GET' || step.method === 'HEAD';
  if (isReading || statusCode >= 307) return { ...step, url };
  return statusCode === 303 ? { url, method: 'GET', body: null } : undefined;
}

/** The headers with the secrets in their places, or what is wrong. */
function headersOf(spec: HttpSpec, { assignment, secrets }: Job): Record<string, string> | string {
  const headers: Record<string, string> = { 'accept-encoding': 'identity', 'user-agent': 'errand' };
  for (const [name, pieces] of spec.headers) {
    const missing = pieces.find((piece) => 'secret' in piece && !secrets.has(piece.secret));
    if (missing && 'secret' in missing)
      return `the header ${name} wants the secret ${missing.secret}, which the template does not name`;
    const value = pieces.map((piece) => ('secret' in piece ? secrets.get(piece.secret)! : piece.text)).join('');
    if (!/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) return `the header ${name} has a character that no header may have`;
    headers[name.toLowerCase()] = value;
  }
  const { idempotencyKey } = assignment;
  if (idempotencyKey) headers['idempotency-key'] = printable(idempotencyKey);
  return headers;
}

/** Headers are ASCII: whatever else a key has is URL-encoded, the same at every attempt. */
function printable(key: string): string {
  return key.toWellFormed().replace(/[^\x21-\x7e]/gu, encodeURIComponent);
}

function withoutContentType(headers: Record<string, string>): Record<string, string> {
  const { 'content-type': _type, ...rest } = headers;
  return rest;
}

/** The spec, or what is wrong with it. The gateway checks templates; this only keeps nonsense from being called. */
function readSpec(spec: unknown): HttpSpec | string {
  const {
    method,
    url,
    headers = [],
    body = null,
    expect = ['2xx'],
    maxResponseBytes = 65_536,
  } = (spec ?? {}) as Partial<HttpSpec>;
  if (typeof url !== 'string' || !URL.canParse(url)) return 'the template has no address to call';
  const { protocol, username, password } = new URL(url);
  if (protocol !== 'http:' && protocol !== 'https:') return 'only http and https addresses can be called';
  if (username !== '' || password !== '')
    return 'an address with a user name or a password is not called; use a header';
  if (typeof method !== 'string' || !/^(GET|HEAD|POST|PUT|PATCH|DELETE)$/.test(method))
    return 'the template has no method';
  const isText = (piece: object) => 'text' in piece || 'secret' in piece;
  const areHeaders = headers.every(
    ([name, pieces]) => /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name) && pieces.every(isText),
  );
  if (!areHeaders) return 'the template has a header that is none';
  return { method, url, headers, body, expect, maxResponseBytes };
}

/** One line of log: without the query, which holds what people wrote. */
function tell(job: Job, { spec, url, status, text, isCut }: CallEnd, tookMs: number): void {
  const size = `${Buffer.byteLength(text)} bytes${isCut ? ' (cut)' : ''}`;
  const line = `[errand] ${spec.method} ${url.origin}${url.pathname}: ${status}, ${size}, ${Math.round(tookMs)} ms\n`;
  job.emit({ type: 'log', stream: 'stderr', text: line, offset: 0 });
}

function failed(error: string): RunEnd {
  return { type: 'failed', errorClass: 'permanent', error: messageOf(error) };
}
