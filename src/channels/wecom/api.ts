import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { Agent, request } from 'undici';
import type { WecomHealth } from './health.ts';

/** How one call of the API ended. WeCom answers HTTP 200 with an `errcode` whatever happened (document 90313). */
export type ApiResult =
  | {
      readonly kind: 'answer';
      readonly errcode: number;
      readonly errmsg: string;
      readonly fields: Readonly<Record<string, unknown>>;
    }
  /** The platform cannot have acted on it: no connection, or something in between refused it. */
  | { readonly kind: 'not_sent'; readonly error: string }
  /** It was written, at least in part, and no usable answer came. */
  | { readonly kind: 'lost'; readonly error: string };

interface ApiCall {
  /** For example `/cgi-bin/message/send`. */
  readonly path: string;
  /** Holds secrets: it is put into the URL and nowhere else. */
  readonly query: Readonly<Record<string, string>>;
  /** Present: POST as JSON. Absent: GET. */
  readonly body?: unknown;
  /** In place of `body`: POST as a form with one file. */
  readonly file?: FormFile;
  readonly signal?: AbortSignal;
}

interface FormFile {
  readonly field: string;
  /** ASCII, without quotes. */
  readonly name: string;
  readonly content: Buffer;
}

const ANSWER_LIMIT_BYTES = 1_048_576;

/** HTTP to qyapi. Errors it answers are built from codes, never from messages that could quote the URL. */
export class WecomApi {
  readonly #root: string;
  readonly #timeoutMs: number;
  readonly #health: WecomHealth;
  #agent: Agent | undefined;

  /** @param timeoutMs longest wait for a connection, and again for an answer */
  constructor(root: string, timeoutMs: number, health: WecomHealth) {
    this.#root = root;
    this.#timeoutMs = timeoutMs;
    this.#health = health;
  }

  /** Never rejects. */
  async call(call: ApiCall): Promise<ApiResult> {
    const result = await this.#try(call);
    if (result.kind === 'answer') this.#health.answered();
    else if (!call.signal?.aborted) this.#health.unanswered(result.error);
    return result;
  }

  async close(): Promise<void> {
    const agent = this.#agent;
    this.#agent = undefined;
    await agent?.destroy();
  }

  async #try(call: ApiCall): Promise<ApiResult> {
    const written = { begun: false };
    const limits = [AbortSignal.timeout(2 * this.#timeoutMs), ...(call.signal ? [call.signal] : [])];
    try {
      const { status, text } = await this.#exchange(call, written, AbortSignal.any(limits));
      return read(status, text);
    } catch (error) {
      return { kind: written.begun ? 'lost' : 'not_sent', error: `${call.path} failed: ${codeOf(error)}` };
    }
  }

  async #exchange(
    call: ApiCall,
    written: { begun: boolean },
    signal: AbortSignal,
  ): Promise<{ status: number; text: string }> {
    const { type, body } = bodyOf(call);
    const response = await request(`${this.#root}${call.path}?${new URLSearchParams(call.query)}`, {
      dispatcher: this.#dispatcher(),
      method: body ? 'POST' : 'GET',
      headers: body ? { 'content-type': type, 'content-length': String(body.length) } : {},
      body: body ? Readable.from(noticed(body, written)) : undefined,
      signal,
    });
    return { status: response.statusCode, text: await response.body.text() };
  }

  #dispatcher(): Agent {
    this.#agent ??= new Agent({
      connect: { timeout: this.#timeoutMs },
      headersTimeout: this.#timeoutMs,
      bodyTimeout: this.#timeoutMs,
      maxResponseSize: ANSWER_LIMIT_BYTES,
    });
    return this.#agent;
  }
}

function bodyOf({ body, file }: ApiCall): { type: string; body?: Buffer } {
  if (file) return formOf(file);
  return {
    type: 'application/json',
    ...(body !== undefined && { body: Buffer.from(JSON.stringify(body), 'utf8') }),
  };
}

/** By hand, because the length of the file belongs into its head (document 90253) and of the whole into the request's. */
function formOf({ field, name, content }: FormFile): { type: string; body: Buffer } {
  const boundary = `errand-${randomUUID()}`;
  const head = [
    `--${boundary}`,
    `Content-Disposition: form-data; name="${field}"; filename="${name}"; filelength=${content.length}`,
    'Content-Type: application/octet-stream',
  ];
  const body = Buffer.concat([
    Buffer.from(`${head.join('\r\n')}\r\n\r\n`),
    content,
    Buffer.from(`\r\n--${boundary}--\r\n`),
  ]);
  return { type: `multipart/form-data; boundary=${boundary}`, body };
}

/** The body is pulled when a connection is there and the request goes out: before that, nothing can have been acted on. */
async function* noticed(body: Buffer, written: { begun: boolean }): AsyncGenerator<Buffer> {
  written.begun = true;
  yield body;
}

function read(status: number, text: string): ApiResult {
  if (status >= 500) return { kind: 'lost', error: `HTTP ${status}` };
  if (status !== 200) return { kind: 'not_sent', error: `HTTP ${status}` };
  const fields = jsonObject(text);
  const errcode = fields?.errcode;
  if (!fields || typeof errcode !== 'number') return { kind: 'lost', error: 'the answer is not JSON with an errcode' };
  return { kind: 'answer', errcode, errmsg: typeof fields.errmsg === 'string' ? fields.errmsg : '', fields };
}

function jsonObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === 'object' && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}

function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown error';
  const code = (error as NodeJS.ErrnoException).code;
  return typeof code === 'string' ? code : error.name;
}
