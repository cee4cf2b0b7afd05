import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Clock } from '../../clock.ts';
import { AppError } from '../../errors.ts';
import type { Log } from '../../log.ts';
import { Poller } from '../../service.ts';
import type { Store } from '../../store/store.ts';
import { type ChatMessage, chatChanges, chatMessages } from './chat-history.ts';
import type { Conversation } from './chat-identity.ts';

/** Default pause between signs of life, milliseconds: shorter than the idle limits of the usual proxies. */
export const HEARTBEAT_MS = 15_000;
/** What a browser is told to wait before it connects again, milliseconds. */
const RETRY_MS = 1_000;
const PAGE = 100;
/** Open streams of one conversation: tabs and devices of one person. */
const MAX_PER_CONVERSATION = 20;
const MAX_STREAMS = 2_000;
/** Changes of messages that a browser may have missed while it was away, milliseconds. */
const MISSED_MS = 600_000;

export interface StreamOptions {
  readonly conversation: Conversation;
  /** Cursor; what comes after it is sent. */
  readonly after: string;
  /** Asked before each round: a person may have lost access. */
  isAllowed(): Promise<boolean>;
}

interface House {
  readonly store: Store;
  readonly log: Log;
  readonly clock: Clock;
  /** Milliseconds between signs of life. */
  readonly heartbeatMs: number;
}

/**
 * The live side of the web chat as server-sent events (HTML standard, section 9.2). A stream remembers the last id it has written
 * and reads the rows after it whenever it is woken, so a lost wake-up costs time and never a message.
 */
export class ChatStreams {
  readonly #house: House;
  readonly #open = new Map<string, Set<ChatStream>>();
  #count = 0;

  constructor(house: House) {
    this.#house = house;
  }

  /** @throws AppError rate_limited when too many are open; nothing is written then */
  check({ sessionKey }: Conversation): void {
    if (this.#count >= MAX_STREAMS || (this.#open.get(sessionKey)?.size ?? 0) >= MAX_PER_CONVERSATION) {
      throw new AppError('rate_limited', 'too many open event streams; close one');
    }
  }

  /** Takes the response over; the stream ends with its connection. */
  open(response: ServerResponse, options: StreamOptions): void {
    const { sessionKey } = options.conversation;
    const stream = new ChatStream(response, this.#house, options);
    const others = this.#open.get(sessionKey) ?? new Set();
    this.#open.set(sessionKey, others.add(stream));
    this.#count += 1;
    response.on('close', () => {
      this.#count -= 1;
      others.delete(stream);
      if (others.size === 0) this.#open.delete(sessionKey);
    });
    stream.start();
  }

  /** Something may have been added to this conversation. */
  wake(sessionKey: string): void {
    for (const stream of this.#open.get(sessionKey) ?? []) stream.wake();
  }

  /** Ends all; browsers connect again by themselves. */
  async stop(): Promise<void> {
    const streams = [...this.#open.values()].flatMap((set) => [...set]);
    await Promise.all(streams.map((stream) => stream.stop()));
  }
}

class ChatStream {
  readonly #response: ServerResponse;
  readonly #house: House;
  readonly #options: StreamOptions;
  readonly #poller: Poller;
  #last: string;
  /** Changes up to here were told; of its own millisecond those that are named. */
  #changed: { at: number; told: Set<string> };

  constructor(response: ServerResponse, house: House, options: StreamOptions) {
    this.#response = response;
    this.#house = house;
    this.#options = options;
    this.#last = options.after;
    this.#changed = { at: house.clock.now() - MISSED_MS, told: new Set() };
    this.#poller = new Poller({
      runOnce: (signal) => this.#round(signal),
      onError: (error) => {
        house.log.warn('chat.events_failed', { error });
        response.end();
        return house.heartbeatMs;
      },
    });
  }

  start(): void {
    this.#response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store, no-transform',
      'x-accel-buffering': 'no',
      'x-content-type-options': 'nosniff',
    });
    this.#response.write(`retry: ${RETRY_MS}\n\n`);
    this.#response.on('error', () => undefined);
    this.#response.on('close', () => void this.#poller.stop());
    void this.#poller.start();
  }

  wake(): void {
    this.#poller.wake();
  }

  async stop(): Promise<void> {
    this.#response.end();
    await this.#poller.stop();
  }

  async #round(signal: AbortSignal): Promise<number> {
    const { store, heartbeatMs } = this.#house;
    if (!(await this.#options.isAllowed())) {
      this.#response.end();
      return heartbeatMs;
    }
    const messages = await chatMessages(store, this.#options.conversation, { after: this.#last, limit: PAGE });
    const changes = await this.#changes();
    const text = [...messages.map((message) => eventText(message)), ...changes].join('');
    await this.#write(text === '' ? ': alive\n\n' : text, signal);
    this.#last = messages.at(-1)?.id ?? this.#last;
    return messages.length === PAGE ? 0 : heartbeatMs;
  }

  /** A message that has another text now is sent again as it is, under no id: it is no place to go on from. */
  async #changes(): Promise<string[]> {
    const { at, told } = this.#changed;
    const all = await chatChanges(this.#house.store, this.#options.conversation, at, PAGE);
    const fresh = all.filter(({ message, editedAt }) => editedAt > at || !told.has(message.id));
    const newest = fresh.at(-1)?.editedAt ?? at;
    const ofNewest = fresh.filter(({ editedAt }) => editedAt === newest).map(({ message }) => message.id);
    this.#changed = { at: newest, told: new Set([...(newest === at ? told : []), ...ofNewest]) };
    return fresh.map(({ message }) => `event: edit\ndata: ${JSON.stringify(message)}\n\n`);
  }

  /** Waits for a slow reader, so that memory holds one page per stream at most. */
  async #write(text: string, signal: AbortSignal): Promise<void> {
    if (this.#response.writableEnded || this.#response.destroyed) return;
    if (!this.#response.write(text)) await once(this.#response, 'drain', { signal });
  }
}

/** JSON holds no line break, so one data line is enough. */
function eventText(message: ChatMessage): string {
  return `id: ${message.id}\nevent: message\ndata: ${JSON.stringify(message)}\n\n`;
}
