import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  type CallbackKeys,
  envelopeXml,
  eventXml,
  type MessageFields,
  sealCallback,
  textMessageXml,
} from './fake-wecom-callback.ts';
import { readMultipart } from './multipart.ts';

/** What the platform does to one call instead of its normal work. */
export type WecomScript =
  | { readonly errcode: number; readonly errmsg?: string; readonly fields?: Readonly<Record<string, unknown>> }
  | { readonly http: number; readonly body?: string }
  /** Reads the call and never answers. */
  | 'hang'
  /** Does its work, then cuts the connection without an answer. */
  | 'drop after accepting'
  /** Cuts the connection without doing anything. */
  | 'drop before accepting';

export type WecomPath = 'gettoken' | 'message/send' | 'media/upload';

export interface WecomCall {
  readonly path: string;
  readonly errcode?: number;
  readonly body?: SendBody;
}

export interface SendBody {
  readonly touser?: string;
  readonly msgtype?: string;
  readonly agentid?: number;
  readonly text?: { readonly content?: string };
  readonly markdown?: { readonly content?: string };
  readonly file?: { readonly media_id?: string };
  readonly enable_duplicate_check?: number;
  readonly duplicate_check_interval?: number;
}

export interface Delivery {
  /** How often the platform posted it, at most three times. */
  readonly attempts: number;
  /** Of the last attempt; undefined when there was no HTTP answer. */
  readonly status: number | undefined;
  readonly body: string;
}

export interface FakeWecomOptions extends Partial<CallbackKeys> {
  readonly agentId?: string;
  readonly secret?: string;
  /** Epoch milliseconds; default: the real clock. */
  readonly now?: () => number;
  /** Seconds a token lives; default 7200. */
  readonly expiresIn?: number;
  /** More calls of gettoken than this in a minute get errcode 45009; default 20. */
  readonly tokenCallsPerMinute?: number;
  /** Known persons, lower case; default: everybody is known. */
  readonly members?: readonly string[];
}

const TEXT_BYTES = 2_048;
const PER_MINUTE = 30;
const CALLBACK_TIMEOUT_MS = 5_000;

/** A WeCom in one process: qyapi as a real HTTP server with the platform's limits, and the sender of callbacks. */
export class FakeWecom {
  readonly corpId: string;
  readonly agentId: string;
  readonly secret: string;
  readonly token: string;
  readonly encodingAesKey: string;
  /** Every call of the API in order. */
  readonly calls: WecomCall[] = [];
  /** What a careful client never makes the platform do: cut a text, drop one for being too many. */
  readonly violations: string[] = [];
  /** Where callbacks go, for example `http://127.0.0.1:8787/channels/wecom/callback`. */
  callbackUrl = '';
  url = '';
  /** Decides about each call that is not scripted. */
  misfortune: ((path: WecomPath, body: SendBody | undefined) => WecomScript | undefined) | undefined;
  readonly #options: FakeWecomOptions;
  readonly #now: () => number;
  readonly #server: Server;
  readonly #scripts: Record<WecomPath, WecomScript[]> = {
    gettoken: [],
    'message/send': [],
    'media/upload': [],
  };
  readonly #media = new Map<string, string>();
  /** `text` is what the person sees. */
  readonly #delivered: { user: string; text: string; sent: string; at: number }[] = [];
  readonly #tokenCalls: number[] = [];
  #accessToken: { value: string; expiresAt: number } | undefined;
  #sequence = 0;

  constructor(options: FakeWecomOptions = {}) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    this.corpId = options.corpId ?? 'ww0123456789abcdef';
    this.agentId = options.agentId ?? '1000002';
    this.secret = options.secret ?? `secret${randomBytes(12).toString('hex')}`;
    this.token = options.token ?? randomBytes(8).toString('hex');
    this.encodingAesKey = options.encodingAesKey ?? `${randomBytes(21).toString('hex')}A`;
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch(() => response.destroy());
    });
  }

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return this;
  }

  /** From now on connections are refused. Idempotent. */
  async stop(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }

  /** The next calls of this path get these instead, one each. */
  script(path: WecomPath, ...scripts: WecomScript[]): void {
    this.#scripts[path].push(...scripts);
  }

  /** The texts a person has got, oldest first. */
  history(user: string): string[] {
    return this.#delivered.filter((item) => item.user === user.toLowerCase()).map((item) => item.text);
  }

  /** How often a path was called. */
  count(path: WecomPath): number {
    return this.calls.filter((call) => call.path === `/cgi-bin/${path}`).length;
  }

  /** The current access token, as the secret it is. */
  get accessToken(): string | undefined {
    return this.#accessToken?.value;
  }

  /** The platform withdraws the token before its time: calls that carry it get 40014. */
  withdrawToken(): void {
    this.#accessToken = undefined;
  }

  newMessageId(): string {
    this.#sequence += 1;
    return String(7_300_000_000_000_000_000n + BigInt(this.#sequence));
  }

  /** A person writes. Posted until it is answered 200, three times in all; each attempt has its own nonce and random bytes. */
  userSends(message: { user: string; text: string; messageId?: string }): Promise<Delivery> {
    return this.deliver(
      textMessageXml(this.#fields(message.user), message.text, message.messageId ?? this.newMessageId()),
    );
  }

  userTriggers(event: { user: string; event: string; fields?: Readonly<Record<string, string>> }): Promise<Delivery> {
    return this.deliver(eventXml(this.#fields(event.user), event.event, event.fields));
  }

  /** Posts one plaintext as WeCom does. */
  async deliver(plaintext: string, attempts = 3): Promise<Delivery> {
    for (let attempt = 1; ; attempt += 1) {
      const answer = await this.postOnce(plaintext);
      if (answer.status === 200 || attempt === attempts) return { attempts: attempt, ...answer };
    }
  }

  async postOnce(plaintext: string): Promise<{ status: number | undefined; body: string }> {
    const sealed = sealCallback(this, plaintext, { timestamp: this.#seconds() });
    return this.knock('POST', sealed.query, envelopeXml(this.corpId, this.agentId, sealed.encrypted));
  }

  /** The console's check of the callback address; the gateway must answer with the text that was sealed. */
  async verifyUrl(echo = String(this.#now())): Promise<{ status: number | undefined; body: string; ok: boolean }> {
    const sealed = sealCallback(this, echo, { timestamp: this.#seconds() });
    const answer = await this.knock('GET', { ...sealed.query, echostr: sealed.encrypted });
    return { ...answer, ok: answer.status === 200 && answer.body === echo };
  }

  /** One HTTP request to the callback address; no answer within five seconds counts as none. */
  async knock(
    method: 'GET' | 'POST',
    query: Record<string, string>,
    body?: string,
  ): Promise<{ status: number | undefined; body: string }> {
    try {
      const headers = new Headers(body === undefined ? [] : [['content-type', 'text/xml']]);
      const signal = AbortSignal.timeout(CALLBACK_TIMEOUT_MS);
      const response = await fetch(`${this.callbackUrl}?${new URLSearchParams(query)}`, {
        method,
        headers,
        body,
        signal,
      });
      return { status: response.status, body: await response.text() };
    } catch {
      return { status: undefined, body: '' };
    }
  }

  #fields(user: string): MessageFields {
    return { corpId: this.corpId, agentId: this.agentId, user, createTime: Number(this.#seconds()) };
  }

  #seconds(): string {
    return String(Math.floor(this.#now() / 1_000));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', this.url);
    const chunks: Buffer[] = [];
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    const raw = Buffer.concat(chunks);
    const type = request.headers['content-type'] ?? '';
    const isForm = type.startsWith('multipart/form-data');
    const body = raw.length > 0 && !isForm ? (JSON.parse(raw.toString('utf8')) as SendBody) : undefined;
    const path = url.pathname.replace('/cgi-bin/', '') as WecomPath;
    const script = this.#scripts[path]?.shift() ?? this.misfortune?.(path, body);
    if (script && script !== 'drop after accepting') return this.#played(script, url.pathname, body, response);
    const answer =
      path === 'gettoken'
        ? this.#getToken(url.searchParams)
        : path === 'media/upload'
          ? this.#upload(url.searchParams, type, raw)
          : this.#sendMessage(path, url.searchParams, body);
    this.calls.push({ path: url.pathname, errcode: answer.errcode as number, body });
    if (script === 'drop after accepting') response.destroy();
    else json(response, answer);
  }

  #played(
    script: Exclude<WecomScript, 'drop after accepting'>,
    path: string,
    body: SendBody | undefined,
    response: ServerResponse,
  ): void {
    const errcode = typeof script === 'object' && 'errcode' in script ? script.errcode : undefined;
    this.calls.push({ path, errcode, body });
    if (script === 'hang') return;
    if (script === 'drop before accepting') {
      response.destroy();
    } else if ('http' in script) {
      response.writeHead(script.http).end(script.body ?? 'bad gateway');
    } else {
      json(response, { errcode: script.errcode, errmsg: script.errmsg ?? 'scripted', ...script.fields });
    }
  }

  #getToken(query: URLSearchParams): Record<string, unknown> {
    const now = this.#now();
    this.#tokenCalls.push(now);
    const inMinute = this.#tokenCalls.filter((at) => at > now - 60_000).length;
    if (inMinute > (this.#options.tokenCallsPerMinute ?? 20))
      return { errcode: 45009, errmsg: 'reach max api daily quota limit' };
    if (query.get('corpid') !== this.corpId) return { errcode: 40013, errmsg: 'invalid corpid' };
    if (query.get('corpsecret') !== this.secret) return { errcode: 40001, errmsg: 'invalid credential' };
    const expiresIn = this.#options.expiresIn ?? 7_200;
    if (!this.#accessToken || this.#accessToken.expiresAt <= now) {
      this.#accessToken = { value: `tok${randomBytes(24).toString('hex')}`, expiresAt: now + expiresIn * 1_000 };
    }
    const left = Math.round((this.#accessToken.expiresAt - now) / 1_000);
    return { errcode: 0, errmsg: 'ok', access_token: this.#accessToken.value, expires_in: left };
  }

  #sendMessage(path: string, query: URLSearchParams, body: SendBody | undefined): Record<string, unknown> {
    if (path !== 'message/send') return { errcode: 404, errmsg: 'unknown api' };
    const token = query.get('access_token');
    if (!token) return { errcode: 41001, errmsg: 'access_token missing' };
    if (token !== this.#accessToken?.value) return { errcode: 40014, errmsg: 'invalid access_token' };
    if (this.#accessToken.expiresAt <= this.#now()) return { errcode: 42001, errmsg: 'access_token expired' };
    if (String(body?.agentid) !== this.agentId) return { errcode: 40056, errmsg: 'invalid agentid' };
    const content = this.#contentOf(body ?? {});
    if (typeof content !== 'string') return content;
    if (!body?.touser) return { errcode: 82001, errmsg: 'no recipient' };
    return this.#accept(body, body.touser.toLowerCase().split('|'), content);
  }

  /** What the person is sent: the text, the Markdown, or the file's content. */
  #contentOf({ msgtype, text, markdown, file }: SendBody): string | Record<string, unknown> {
    if (msgtype === 'text') return text?.content || { errcode: 44004, errmsg: 'text content is empty' };
    if (msgtype === 'markdown') return markdown?.content || { errcode: 44004, errmsg: 'text content is empty' };
    if (msgtype !== 'file') return { errcode: 40008, errmsg: 'invalid message type' };
    return this.#media.has(file?.media_id ?? '') ? file!.media_id! : { errcode: 40007, errmsg: 'invalid media_id' };
  }

  /** Files of 5 bytes to 20 MB (document 90253). */
  #upload(query: URLSearchParams, type: string, raw: Buffer): Record<string, unknown> {
    const token = query.get('access_token');
    if (token === null || token !== this.#accessToken?.value) return { errcode: 40014, errmsg: 'invalid access_token' };
    if (query.get('type') !== 'file') return { errcode: 40004, errmsg: 'invalid media type' };
    const file = readMultipart(type, raw).find(({ name, fileName }) => name === 'media' && fileName !== undefined);
    if (!file) return { errcode: 41005, errmsg: 'media data missing' };
    const { length } = file.content;
    if (length <= 5 || length > 20 * 1_048_576) return { errcode: 40006, errmsg: 'invalid media size' };
    this.#sequence += 1;
    const mediaId = `media-${this.#sequence}`;
    this.#media.set(mediaId, file.content.toString('utf8'));
    return { errcode: 0, errmsg: 'ok', type: 'file', media_id: mediaId, created_at: this.#seconds() };
  }

  /** The platform drops its uploads, as it does after three days. */
  dropMedia(): void {
    this.#media.clear();
  }

  #accept(body: SendBody, users: readonly string[], text: string): Record<string, unknown> {
    const { members } = this.#options;
    const unknown = members ? users.filter((user) => !members.includes(user)) : [];
    if (unknown.length === users.length) return { errcode: 81013, errmsg: 'user & party & tag all invalid' };
    for (const user of users) if (!unknown.includes(user)) this.#deliverTo(user, text, body);
    this.#sequence += 1;
    return { errcode: 0, errmsg: 'ok', invaliduser: unknown.join('|'), msgid: `msgid-${this.#sequence}` };
  }

  /** Cuts, drops and answers ok all the same, as the platform does. */
  #deliverTo(user: string, text: string, body: SendBody): void {
    const now = this.#now();
    const bytes = Buffer.from(text);
    if (bytes.length > TEXT_BYTES) this.violations.push(`a text of ${bytes.length} bytes was cut`);
    const cut = bytes.subarray(0, TEXT_BYTES).toString('utf8');
    const shown = body.msgtype === 'markdown' ? asShown(cut) : (this.#media.get(body.file?.media_id ?? '') ?? cut);
    const since = now - (body.duplicate_check_interval ?? 1_800) * 1_000;
    const repeat = this.#delivered.some((item) => item.user === user && item.sent === text && item.at > since);
    if (body.enable_duplicate_check === 1 && repeat) return;
    if (this.#delivered.filter((item) => item.user === user && item.at > now - 60_000).length >= PER_MINUTE) {
      this.violations.push(`a message to ${user} was dropped: more than ${PER_MINUTE} in a minute`);
      return;
    }
    this.#delivered.push({ user, text: shown, sent: text, at: now });
  }
}

export function startFakeWecom(options: FakeWecomOptions = {}): Promise<FakeWecom> {
  return new FakeWecom(options).start();
}

/** Markdown as WeCom's app shows it: without the signs of its subset. */
function asShown(markdown: string): string {
  return markdown
    .replace(/\*\*([^*\n]+)\*\*/g, '$1')
    .replace(/`([^`\n]+)`/g, '$1')
    .replace(/\[([^\]\n]+)\]\([^)\s]+\)/g, '$1');
}

function json(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { 'content-type': 'application/json; charset=UTF-8' }).end(JSON.stringify(value));
}
