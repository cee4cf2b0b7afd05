import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { readMultipart } from '../multipart.ts';
import { until } from '../until.ts';
import { type Behaviour, badRequest, type Json, Refusal, type ShownMessage } from './answers.ts';
import { Chats, type SendingUser, type UserMessage } from './chats.ts';
import { Floods } from './floods.ts';
import { type Update, Updates } from './updates.ts';

export interface FakeTelegramOptions {
  /** Default: a well-formed token. */
  token?: string;
  /** Default: `errand_bot`. */
  username?: string;
  /** Enforces the platform's rates by this clock, epoch milliseconds; default: calls are not counted. */
  now?: () => number;
}

export interface ApiCall {
  method: string;
  params: Json;
}

/**
 * The Bot API of one bot as a real HTTP server on 127.0.0.1, with the platform's rules, and hands to play the people who write to it.
 * Rules: Bot API documentation and the Bot API server's texts.
 */
export async function startFakeTelegram(options: FakeTelegramOptions = {}): Promise<FakeTelegram> {
  const fake = new FakeTelegram(options);
  await fake.comeBack();
  return fake;
}

export class FakeTelegram {
  readonly token: string;
  readonly username: string;
  readonly botId: number;
  readonly updates = new Updates();
  readonly chats = new Chats(() => Math.floor(Date.now() / 1000));
  /** Every call that arrived, in order. */
  readonly calls: ApiCall[] = [];
  readonly commands: unknown[] = [];
  /** Absent: calls are not counted. */
  readonly floods: Floods | undefined;
  /** Decides about each call that is not scripted. */
  misfortune: ((call: ApiCall) => Behaviour | undefined) | undefined;
  /** Refuse the token, as after it was revoked. */
  revoked = false;
  readonly #scripts = new Map<string, Behaviour[]>();
  readonly #answeredQueries = new Set<string>();
  #server: Server | undefined;
  #port = 0;
  #nextQuery = 1;

  constructor(options: FakeTelegramOptions) {
    this.token = options.token ?? '7100200300:AAFakeFakeFakeFakeFakeFakeFakeFake_-x';
    this.username = options.username ?? 'errand_bot';
    this.floods = options.now && new Floods(options.now);
    this.botId = Number(this.token.split(':')[0]);
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** A person writes. */
  userSends(said: UserMessage): Update {
    return this.updates.push({ message: this.chats.fromUser(said) });
  }

  /** A person presses a button under a message (none: a button of an inline result). */
  userPresses(press: { user: number | SendingUser; data: string; message?: Json }): Update {
    const user = typeof press.user === 'number' ? { id: press.user } : press.user;
    const id = `query${this.#nextQuery}`;
    this.#nextQuery += 1;
    const from = { is_bot: false, first_name: `User ${user.id}`, ...user };
    return this.updates.push({
      callback_query: {
        id,
        from,
        chat_instance: '1',
        data: press.data,
        ...(press.message && { message: press.message }),
      },
    });
  }

  /** Everything said in a chat, oldest first. */
  history(chat: number): readonly ShownMessage[] {
    return this.chats.of(chat).messages;
  }

  /** The bot's texts in a chat, oldest first. */
  botTexts(chat: number): string[] {
    return this.history(chat)
      .filter((message) => message.from === 'bot')
      .map((message) => message.text);
  }

  callsOf(method: string): Json[] {
    return this.calls.filter((call) => call.method === method).map((call) => call.params);
  }

  /** The next calls of this method behave like this, one each; later ones normally. */
  script(method: string, ...behaviours: Behaviour[]): void {
    this.#scripts.set(method, [...(this.#scripts.get(method) ?? []), ...behaviours]);
  }

  /** Nobody listens any more; open connections are cut. Resolves when a call of this process is refused, not merely cut. */
  async goAway(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (!server) return;
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
    await until(() => refused(this.url), 'connections to be refused');
  }

  /** Listens again, on the same port. */
  async comeBack(): Promise<void> {
    const server = createServer((request, response) => {
      // A client that hangs up in the middle of its request is no concern of the server.
      this.#answer(request, response).catch(() => response.destroy());
    });
    this.#server = server;
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(this.#port, '127.0.0.1', resolve);
    });
    this.#port = (server.address() as AddressInfo).port;
  }

  async stop(): Promise<void> {
    this.updates.close();
    await this.goAway();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const [, token, method] = /^\/bot([^/]+)\/(\w+)(?:\?.*)?$/.exec(request.url ?? '') ?? [];
    const params = await readParams(request);
    if (method === undefined || token !== this.token || this.revoked) {
      const [code, text] = this.revoked && token === this.token ? [401, 'Unauthorized'] : [404, 'Not Found'];
      return reply(response, code, { ok: false, error_code: code, description: text });
    }
    this.calls.push({ method, params });
    const behaviour = this.#scripts.get(method)?.shift() ?? this.misfortune?.({ method, params });
    if (behaviour?.kind === 'wait') await behaviour.for;
    else if (behaviour && behaviour.kind !== 'dropAfter') return misbehave(response, behaviour);
    const dropped = behaviour?.kind === 'dropAfter';
    await this.#carryOut(method, params, gone.signal, dropped ? undefined : response);
    if (dropped) response.destroy();
  }

  async #carryOut(
    method: string,
    params: Json,
    gone: AbortSignal,
    response: ServerResponse | undefined,
  ): Promise<void> {
    try {
      const waitSec = /^(send(Message|Document)|edit)/.test(method) && this.floods?.check(Number(params.chat_id));
      if (waitSec) throw new Refusal(429, `Too Many Requests: retry after ${waitSec}`, { retry_after: waitSec });
      const result = await this.#call(method, params, gone);
      if (response) reply(response, 200, { ok: true, result });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const { code, message, parameters } = error;
      if (response)
        reply(response, code, { ok: false, error_code: code, description: message, ...(parameters && { parameters }) });
    }
  }

  async #call(method: string, params: Json, gone: AbortSignal): Promise<unknown> {
    switch (method) {
      case 'getMe':
        return {
          id: this.botId,
          is_bot: true,
          first_name: 'Errand',
          username: this.username,
          can_read_all_group_messages: false,
        };
      case 'getUpdates':
        return await this.updates.poll(params, gone);
      case 'setWebhook':
        return this.#setWebhook(params);
      case 'deleteWebhook':
        this.updates.setWebhook(undefined);
        return true;
      case 'getWebhookInfo':
        return { url: this.updates.webhook?.url ?? '', has_custom_certificate: false, pending_update_count: 0 };
      case 'sendMessage':
        return this.chats.sendMessage(params);
      case 'sendDocument':
        return this.chats.sendDocument(params);
      case 'editMessageText':
        return this.chats.editMessageText(params);
      case 'answerCallbackQuery':
        return this.#answerQuery(String(params.callback_query_id));
      case 'setMyCommands':
        this.commands.push(params.commands);
        return true;
      case 'sendChatAction':
        return true;
      default:
        throw new Refusal(404, 'Not Found: method not found');
    }
  }

  #setWebhook(params: Json): true {
    const secret = params.secret_token as string | undefined;
    if (secret !== undefined && !/^[A-Za-z0-9_-]{1,256}$/.test(secret))
      throw badRequest('secret token contains unallowed characters');
    if (Array.isArray(params.allowed_updates)) this.updates.allowed = params.allowed_updates as string[];
    const url = String(params.url ?? '');
    this.updates.setWebhook(url === '' ? undefined : { url, secret });
    return true;
  }

  #answerQuery(id: string): true {
    if (this.#answeredQueries.has(id) || !/^query\d+$/.test(id)) {
      throw badRequest('query is too old and response timeout expired or query ID is invalid');
    }
    this.#answeredQueries.add(id);
    return true;
  }
}

/** Sockets that the client keeps for the next call are noticed to be closed a moment later; until then a call is cut. */
async function refused(url: string): Promise<boolean> {
  try {
    await fetch(url);
    return false;
  } catch (error) {
    return ((error as Error).cause as { code?: string } | undefined)?.code === 'ECONNREFUSED';
  }
}

function misbehave(response: ServerResponse, behaviour: Behaviour): void {
  switch (behaviour.kind) {
    case 'refuse': {
      const { code, description, parameters } = behaviour;
      reply(response, code, { ok: false, error_code: code, description, ...(parameters && { parameters }) });
      return;
    }
    case 'raw':
      response.writeHead(behaviour.status, { 'content-type': 'text/html' }).end(behaviour.body);
      return;
    case 'hang':
      return;
    default:
      response.destroy();
  }
}

function reply(response: ServerResponse, status: number, body: Json): void {
  if (response.destroyed) return;
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

async function readParams(request: IncomingMessage): Promise<Json> {
  if (/^multipart\/form-data/.test(request.headers['content-type'] ?? '')) return readForm(request);
  let text = '';
  request.setEncoding('utf8');
  for await (const chunk of request) text += chunk;
  if (text === '') return Object.fromEntries(new URL(request.url ?? '/', 'http://x').searchParams);
  return JSON.parse(text) as Json;
}

/** Values that are JSON are read as such, as the Bot API does; the file becomes its name and text. A field may name it by `attach://`. */
async function readForm(request: IncomingMessage): Promise<Json> {
  const chunks: Buffer[] = [];
  for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
  const files = new Map<string, Json>();
  const params: Json = {};
  for (const { name, fileName, content } of readMultipart(request.headers['content-type']!, Buffer.concat(chunks))) {
    if (fileName === undefined) params[name] = jsonOr(content.toString('utf8'));
    else files.set(name, { name: fileName, content: content.toString('utf8') });
  }
  for (const [name, value] of Object.entries(params)) {
    const file = typeof value === 'string' && value.startsWith('attach://') ? files.get(value.slice(9)) : undefined;
    if (file) params[name] = file;
  }
  return { ...Object.fromEntries(files), ...params };
}

function jsonOr(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
