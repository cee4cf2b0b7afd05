import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ChannelName, ChannelPort } from '../../../src/channels/channel.ts';
import { type ManualClock, manualClock } from '../../../src/clock.ts';
import { type GatewaySettings, readGatewaySettings } from '../../../src/config/gateway.ts';
import { AdminAuth } from '../../../src/http/auth.ts';
import { HotRoutes } from '../../../src/http/hot.ts';
import { chatRoutes } from '../../../src/http/routes/chat.ts';
import { conversationOf } from '../../../src/http/routes/chat-identity.ts';
import { type HttpServer, startHttpServer } from '../../../src/http/server.ts';
import { createChannelPort } from '../../../src/intake/inbox.ts';
import { settleMessage } from '../../../src/intake/queries.ts';
import { createLog, type Log } from '../../../src/log.ts';
import { createOutbox, type Outbox } from '../../../src/outbox/enqueue.ts';
import type { NewMessage, OutboxEvent } from '../../../src/outbox/message.ts';
import { createLoginLink } from '../../../src/sessions/logins.ts';
import { EventQueue } from '../../../src/store/events.ts';
import { openSqlite } from '../../../src/store/sqlite.ts';
import type { Store } from '../../../src/store/store.ts';

export const START = Date.UTC(2026, 2, 1, 12);
export const ADMIN_TOKEN = 'admin-token-of-the-tests';

export interface ChatRigOptions {
  env?: Record<string, string>;
  pageDir?: string;
  /** Default: an hour, so that only a wake-up can be why something arrives. */
  heartbeatMs?: number;
  /** Puts something between the routes and the real inbox. */
  port?(real: ChannelPort): ChannelPort;
}

/** JSON as it comes; the tests say what they expect of it. */
// biome-ignore lint/suspicious/noExplicitAny: every test would have to narrow every field it compares
export type Answer = any;

/** What a browser keeps of a login. */
export interface Browser {
  cookie: string;
  csrf: string;
}

/** The chat's routes on a real server and a real store; nobody answers but the test. */
export class ChatRig {
  readonly clock: ManualClock = manualClock(START);
  readonly log: Log;
  readonly #lines: string[] = [];
  readonly #options: ChatRigOptions;
  readonly #folder: string;
  readonly #listeners = new Set<(sessionKey: string) => void>();
  store!: Store;
  outbox!: Outbox;
  #server: HttpServer | undefined;
  #port = 0;

  private constructor(folder: string, options: ChatRigOptions) {
    this.#folder = folder;
    this.#options = options;
    this.log = createLog({ level: 'debug', destination: { write: (line) => void this.#lines.push(line) } });
  }

  static async start(options: ChatRigOptions = {}): Promise<ChatRig> {
    const rig = new ChatRig(await mkdtemp(join(tmpdir(), 'errand-chat-')), options);
    await rig.up();
    return rig;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** How many streams would be told of a change. */
  get listeners(): number {
    return this.#listeners.size;
  }

  logText(): string {
    return this.#lines.join('\n');
  }

  /** Starts on the port it had before. */
  async up(): Promise<void> {
    const { clock, log } = this;
    const store = openSqlite({ path: join(this.#folder, 'errand.db'), clock });
    const letters = new EventQueue<OutboxEvent>();
    this.store = store;
    this.outbox = createOutbox({
      instant: new Set<ChannelName>(['webchat']),
      emit: (tx, events) => letters.emit(tx, events),
    });
    letters.subscribe(async (tx, events) => {
      for (const event of events) {
        if (event.type === 'outbox.sent' && event.sessionKey !== null) {
          const key = event.sessionKey;
          tx.afterCommit(() => this.#tell(key));
        }
      }
    });
    store.onBeforeCommit((tx) => letters.drain(tx));
    const real = createChannelPort({
      store,
      channel: 'webchat',
      account: 'default',
      outbox: this.outbox,
      onStored: () => undefined,
    });
    const webchatPort = this.#options.port?.(real) ?? real;
    const onChatChange = (listener: (sessionKey: string) => void) => {
      this.#listeners.add(listener);
      return () => this.#listeners.delete(listener);
    };
    const rooms = {
      settings: this.#settings(),
      clock,
      log,
      store,
      admin: new AdminAuth(ADMIN_TOKEN),
      webchatPort,
      onChatChange,
    };
    const { pageDir, heartbeatMs = 3_600_000 } = this.#options;
    this.#server = await startHttpServer({
      host: '127.0.0.1',
      port: this.#port,
      log,
      hot: new HotRoutes(new Map(), log),
      doors: [],
      routes: (app) => chatRoutes(app, rooms, { heartbeatMs, ...(pageDir === undefined ? {} : { pageDir }) }),
    });
    this.#port = this.#server.address.port;
  }

  async down(): Promise<void> {
    await this.#server?.stop();
    await this.store.close();
  }

  async end(): Promise<void> {
    await this.down();
    await rm(this.#folder, { recursive: true, force: true });
  }

  /** With the admin token, or as the browser. */
  async call(path: string, options: CallOptions = {}): Promise<{ status: number; body: Answer; headers: Headers }> {
    const response = await this.fetch(path, options);
    const text = await response.text();
    const isJson = /json/.test(response.headers.get('content-type') ?? '');
    return { status: response.status, body: isJson ? JSON.parse(text) : text, headers: response.headers };
  }

  fetch(path: string, { as, body, headers = {}, method, signal }: CallOptions = {}): Promise<Response> {
    const credential: Record<string, string> =
      as === undefined
        ? { authorization: `Bearer ${ADMIN_TOKEN}` }
        : as === 'nobody'
          ? {}
          : { cookie: `errand_login=${as.cookie}`, 'x-errand-csrf': as.csrf };
    const content: Record<string, string> = body === undefined ? {} : { 'content-type': 'application/json' };
    return fetch(`${this.url}${path}`, {
      method: method ?? (body === undefined ? 'GET' : 'POST'),
      headers: { ...content, ...credential, ...headers },
      redirect: 'manual',
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal === undefined ? {} : { signal }),
    });
  }

  /** Presses the button of a login page. */
  press(token: string, headers: Record<string, string> = {}): Promise<Response> {
    const body = new URLSearchParams({ token });
    return fetch(`${this.url}/chat/login`, {
      method: 'POST',
      body,
      headers: { origin: this.url, ...headers },
      redirect: 'manual',
    });
  }

  async link(userId: string, name?: string): Promise<string> {
    const { path } = await createLoginLink(this.store, { userId, ...(name === undefined ? {} : { name }) });
    return new URL(path, this.url).searchParams.get('token')!;
  }

  async signIn(userId: string, name?: string): Promise<Browser> {
    const answer = await this.press(await this.link(userId, name));
    const cookie = /errand_login=([^;]+)/.exec(answer.headers.get('set-cookie') ?? '')?.[1];
    if (cookie === undefined) throw new Error(`no cookie but ${answer.status}`);
    const { body } = await this.call('/api/chat/me', { as: { cookie, csrf: '' } });
    return { cookie, csrf: body.csrf };
  }

  /** The bot says something in this user's conversation. */
  say(user: string, text: string, more: Partial<NewMessage> = {}): Promise<void> {
    const { route, sessionKey } = conversationOf(user);
    return this.store.transact('test.say', (tx) =>
      this.outbox.enqueue(tx, [{ route, sessionKey, kind: 'reply', text, ...more }]),
    );
  }

  /** As the intake does when it has acted on a message. */
  async settle(inboxId: string, user: string, status = 'done'): Promise<void> {
    const id = this.store.ids.decode(inboxId)!;
    const session = conversationOf(user).sessionKey;
    await this.store.transact('test.settle', (tx) =>
      tx.all(settleMessage, { id, status, session, reason: null, now: tx.now }),
    );
  }

  async texts(user: string, query = ''): Promise<string[]> {
    const { body } = await this.call(`/api/chat/messages?user=${encodeURIComponent(user)}${query}`);
    return body.messages.map((message: { text: string }) => message.text);
  }

  #settings(): GatewaySettings {
    return readGatewaySettings({ ERRAND_PORT: '0', ERRAND_STATE_DIR: this.#folder, ...this.#options.env });
  }

  #tell(sessionKey: string): void {
    for (const listener of this.#listeners) listener(sessionKey);
  }
}

export interface CallOptions {
  as?: Browser | 'nobody';
  body?: unknown;
  headers?: Record<string, string>;
  method?: string;
  signal?: AbortSignal;
}

export interface SeenEvent {
  id: string;
  event: string;
  data: Answer;
}

/** A reader of an event stream, as a program writes one. */
export class EventReader {
  readonly events: SeenEvent[] = [];
  /** Comments, which are signs of life. */
  comments = 0;
  status = 0;
  ended = false;
  /** The connection was cut instead of ended by the server. */
  wasCut = false;
  readonly #abort = new AbortController();

  static async open(rig: ChatRig, path: string, options: CallOptions = {}): Promise<EventReader> {
    const reader = new EventReader();
    const response = await rig.fetch(path, { ...options, signal: reader.#abort.signal });
    reader.status = response.status;
    void reader.#read(response);
    return reader;
  }

  texts(): string[] {
    return this.events.map((event) => event.data.text);
  }

  close(): void {
    this.#abort.abort();
  }

  async #read(response: Response): Promise<void> {
    const decoder = new TextDecoder();
    let rest = '';
    try {
      for await (const chunk of response.body!) {
        const blocks = (rest + decoder.decode(chunk as Uint8Array, { stream: true })).split('\n\n');
        rest = blocks.pop()!;
        for (const block of blocks) this.#take(block);
      }
    } catch {
      this.wasCut = true;
    }
    this.ended = true;
  }

  #take(block: string): void {
    if (block.startsWith(':')) this.comments += 1;
    const fields = Object.fromEntries(
      block.split('\n').map((line) => [line.split(': ')[0]!, line.slice(line.indexOf(': ') + 2)]),
    );
    if (fields.data !== undefined)
      this.events.push({ id: fields.id!, event: fields.event!, data: JSON.parse(fields.data) });
  }
}
