import { AppError, ERROR_CODES, type ErrorCode, messageOf } from '../errors.ts';

const TIMEOUT_MS = 30_000;

type Query = Readonly<Record<string, string | number | undefined>>;

/** JSON over HTTP to a running gateway. */
export class Api {
  readonly url: string;
  readonly #token: string;

  constructor({ url, token }: { url: string; token: string }) {
    this.url = url;
    this.#token = token;
  }

  /** @throws AppError what the gateway refused with, or `unreachable` */
  get<T>(path: string, query: Query = {}): Promise<T> {
    const set = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) if (value !== undefined) set.append(name, String(value));
    const text = set.toString();
    return this.#call<T>('GET', text === '' ? path : `${path}?${text}`);
  }

  /** @throws AppError what the gateway refused with, or `unreachable` */
  post<T>(path: string, body?: unknown): Promise<T> {
    return this.#call<T>('POST', path, body);
  }

  /**
   * An answer that is read while it comes; the caller reads its body, or aborts.
   * @throws AppError what the gateway refused with, or `unreachable`
   */
  async open(path: string, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<Response> {
    const sent = { ...headers, authorization: `Bearer ${this.#token}` };
    const response = await fetch(this.url + path, { redirect: 'error', signal, headers: sent }).catch(
      (error: unknown) => {
        throw this.#unreachable(error);
      },
    );
    if (response.ok) return response;
    throw refusal(response.status, parse(await response.text()), this.url);
  }

  /**
   * Sends what may be large, as it is read.
   * @throws AppError what the gateway refused with, or `unreachable`
   */
  async put<T>(path: string, body: AsyncIterable<Uint8Array>): Promise<T> {
    const headers = { authorization: `Bearer ${this.#token}`, 'content-type': 'application/octet-stream' };
    const sent = { method: 'PUT', redirect: 'error', headers, body, duplex: 'half' } as unknown as RequestInit;
    const response = await fetch(this.url + path, sent).catch((error: unknown) => {
      throw this.#unreachable(error);
    });
    const answer = parse(await response.text());
    if (response.ok && answer !== undefined) return answer as T;
    throw refusal(response.status, answer, this.url);
  }

  async #call<T>(method: string, path: string, body?: unknown): Promise<T> {
    const { status, text } = await this.#exchange(method, path, body);
    const answer = parse(text);
    if (status >= 200 && status < 300 && answer !== undefined) return answer as T;
    throw refusal(status, answer, this.url);
  }

  async #exchange(method: string, path: string, body: unknown): Promise<{ status: number; text: string }> {
    const headers = { authorization: `Bearer ${this.#token}`, accept: 'application/json' };
    const sent =
      body === undefined
        ? { headers }
        : { headers: { ...headers, 'content-type': 'application/json' }, body: JSON.stringify(body) };
    try {
      const response = await fetch(this.url + path, {
        method,
        redirect: 'error',
        signal: AbortSignal.timeout(TIMEOUT_MS),
        ...sent,
      });
      return { status: response.status, text: await response.text() };
    } catch (error) {
      throw this.#unreachable(error);
    }
  }

  #unreachable(cause: unknown): AppError {
    return new AppError('unreachable', `cannot reach the gateway at ${this.url}: ${reasonOf(cause)}`, { cause });
  }
}

/** `/api/tasks/${id}` with an id that a person typed: it stays one segment. */
export function path(parts: TemplateStringsArray, ...values: string[]): string {
  return parts.reduce((text, part, index) => text + encodeURIComponent(values[index - 1] ?? '') + part);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** What was refused, as an error of ours; whatever is no answer of a gateway is named as that. */
export function refusal(status: number, answer: unknown, url: string): AppError {
  const { code, detail, field } = (answer ?? {}) as { code?: string; detail?: string; field?: string };
  if (code !== undefined && Object.hasOwn(ERROR_CODES, code))
    return new AppError(code as ErrorCode, detail ?? ERROR_CODES[code as ErrorCode].title, { field });
  return new AppError(
    status >= 500 ? 'unavailable' : 'invalid_request',
    `${url} answered ${status}, not as a gateway does (a proxy in between, or another program?)`,
  );
}

/** `fetch failed` says nothing; its cause does. */
function reasonOf(error: unknown): string {
  if (error instanceof Error && error.name === 'TimeoutError') return `no answer within ${TIMEOUT_MS / 1_000} s`;
  const cause = error instanceof Error ? (error.cause as (Error & { code?: string }) | undefined) : undefined;
  return cause?.code ?? (cause ? messageOf(cause) : messageOf(error));
}
