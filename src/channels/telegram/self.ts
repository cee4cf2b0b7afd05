import type { Api } from 'grammy';
import type { ChannelPort } from '../channel.ts';
import type { BotSelf } from './mapping.ts';

/** The state row that keeps what getMe said. */
const ME = 'me';

/**
 * Who the bot is. The id is the first part of the token; the name is asked for in the background and kept in a state row, so that a
 * gateway that starts while Telegram is away still knows it.
 */
export class SelfKnowledge {
  readonly #api: Api;
  readonly #port: ChannelPort;
  readonly #id: number | undefined;
  #username: string | undefined;
  #readsAll: boolean | undefined;
  #asking: Promise<void> | undefined;
  #asked = false;

  constructor(api: Api, port: ChannelPort, token: string) {
    this.#api = api;
    this.#port = port;
    const id = /^(\d{1,16}):/.exec(token)?.[1];
    this.#id = id === undefined ? undefined : Number(id);
  }

  get current(): BotSelf {
    return { id: this.#id, username: this.#username, readsAll: this.#readsAll };
  }

  async load(): Promise<void> {
    const kept = await this.#port.state.get<{ username?: string; readsAll?: boolean }>(ME);
    this.#username ??= kept?.username;
    this.#readsAll ??= kept?.readsAll;
  }

  /** Asks Telegram; calls that come meanwhile share the answer. Throws what the call throws. */
  refresh(signal: AbortSignal): Promise<void> {
    this.#asking ??= this.#ask(signal).finally(() => {
      this.#asking = undefined;
      this.#asked = true;
    });
    return this.#asking;
  }

  /** Gives the first question time to be answered, so that a group's `/cmd@me` is not taken for another bot's. Never throws. */
  async introduced(signal: AbortSignal): Promise<void> {
    if (this.#username !== undefined || this.#asked) return;
    await this.refresh(signal).catch(() => undefined);
  }

  async #ask(signal: AbortSignal): Promise<void> {
    const me = await this.#api.raw.getMe(signal as never);
    if (typeof me?.username !== 'string') return;
    const readsAll = me.can_read_all_group_messages === true;
    if (me.username === this.#username && readsAll === this.#readsAll) return;
    this.#username = me.username;
    this.#readsAll = readsAll;
    await this.#port.state.set(ME, { id: me.id, username: me.username, readsAll });
  }
}
