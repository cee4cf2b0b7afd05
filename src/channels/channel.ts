/**
 * The port between a chat platform and Errand: types only. An adapter turns platform updates into `IncomingMessage`s, hands them
 * to `ChannelPort.accept`, and turns `OutgoingMessage`s into platform calls. It owns no queue, no retry and no state of its own:
 * what must survive goes through the port.
 */

export type ChannelName = 'telegram' | 'wecom' | 'webchat';

/** Where a message came from and where its answer goes: captured once from the message, never rebuilt (law 4). */
export interface Route {
  readonly channel: ChannelName;
  /** Which account of the channel (bot); `default` where there is one. */
  readonly account: string;
  /** The platform's id of the chat; for direct chats of WeCom and the web chat, the user's id. */
  readonly chat: string;
  readonly chatKind: 'direct' | 'group';
  /** Forum topic or thread, where the platform has them. */
  readonly thread?: string;
  /** The platform's id of the message that asked; answers reply to it where the platform can. */
  readonly messageId?: string;
}

export interface Sender {
  /** The platform's id of the person, as text; undefined for anonymous admins and channel posts, who have no rights. */
  readonly id?: string;
  readonly name?: string;
}

/** One message of a person, as the platform delivered it. */
export interface IncomingMessage {
  /** Unique per (channel, account): `update:<id>`, a MsgId, or a sha256; the inbox dedupes on it. */
  readonly identity: string;
  /** `text`: words or a command. `button`: `text` is the button's data. `other`: nothing Errand acts on (a photo, a join); kept as a row. */
  readonly kind: 'text' | 'button' | 'other';
  readonly route: Route;
  readonly sender: Sender;
  /** Plain text, the bot's own mention removed; empty for `other`. */
  readonly text: string;
  /** Meant for the bot: direct chat, command, mention, reply to it. Group talk that is not addressed is not acted on. */
  readonly addressed: boolean;
  /** The platform's time of the message, epoch milliseconds; information only. */
  readonly sentAt?: number;
  /** The platform says that a chat has another id from now on. It says so twice, in the old chat and in the new one. */
  readonly moved?: { readonly from: string; readonly to: string };
  /** The person has changed a message that was delivered before; `route.messageId` names it. Starts nothing by itself. */
  readonly edited?: true;
  /** Messages that share it are one message of several pictures. */
  readonly album?: string;
  /** The bot was added to this group just now. */
  readonly joined?: true;
  /** The platform shows the bot only commands, mentions and replies to it in this group; told of joins and of /start. */
  readonly limitedView?: true;
}

export type AcceptResult = 'stored' | 'duplicate';

/** What the gateway offers an adapter. */
export interface ChannelPort {
  /**
   * Stores messages durably, in order, in one transaction, and with them (optionally) one state row, for example the polling offset.
   * When it resolves they are on disk; only then may the platform be told. Repeated identities are answered `duplicate`.
   * Rejects (nothing stored) when the store cannot write: tell the platform to deliver again.
   */
  accept(batch: readonly IncomingMessage[], state?: { key: string; value: unknown }): Promise<AcceptResult[]>;
  /** Small JSON rows of this channel and account. */
  readonly state: {
    get<T>(key: string): Promise<T | undefined>;
    set(key: string, value: unknown): Promise<void>;
  };
  /**
   * Takes or renews a named lease for this process, `ttlMs` long; false while another process holds it.
   * For loops that only one process may run, such as polling.
   */
  lease(name: string, ttlMs: number): Promise<boolean>;
}

/** How a stretch of a text is shown. Plain text without its marks says the same. */
export type MarkKind = 'bold' | 'italic' | 'code' | 'pre' | 'link' | 'quote';

export interface Mark {
  readonly kind: MarkKind;
  /** UTF-16 units from the beginning of the text. */
  readonly start: number;
  /** UTF-16 units. */
  readonly length: number;
  /** Of `pre`: the language it is written in. */
  readonly language?: string;
  /** Of `link`: http, https or mailto. */
  readonly url?: string;
}

/** A text as people read it, and how it looks where the platform can. */
export interface RichText {
  readonly text: string;
  readonly marks?: readonly Mark[];
}

/** One part of a message, within the channel's limits; a part with a file has a caption as its text. */
export interface Part extends RichText {
  readonly file?: TextFile;
}

/** What is to be cut. */
export interface LongText extends RichText {
  /** Public id of the task it is about: where the whole text is found when a file cannot be sent. */
  readonly taskId?: string;
}

export interface TextFile {
  readonly name: string;
  /** Its content, UTF-8. */
  readonly text: string;
  /** What is said in its stead where the platform does not take it. */
  readonly instead: string;
}

export interface OutgoingMessage extends Part {
  /** The outbox row's public id; stable over repeats. */
  readonly id: string;
  readonly route: Route;
  /** False for the second and later parts of one message: they do not reply. */
  readonly first: boolean;
  /** The same call may have reached the platform before (crash between send and mark). */
  readonly mayBeRepeat: boolean;
}

/** How one call ended; the outbox decides what follows. */
export type SendOutcome =
  /** `movedTo`: the chat has this id from now on, and the message is there. */
  | { readonly outcome: 'sent'; readonly platformId: string; readonly movedTo?: string }
  /** Surely not delivered; try again, not before `afterMs` if given. `scope: chat` holds only this chat, `channel` the whole account. */
  | { readonly outcome: 'retry'; readonly error: string; readonly afterMs?: number; readonly scope: 'chat' | 'channel' }
  /** The request may have reached the platform: the answer was lost. `safe` means the platform drops an identical repeat. */
  | { readonly outcome: 'unknown'; readonly error: string; readonly safe: boolean }
  /**
   * Will never be delivered; `unreachable`: nothing else will reach this chat either until it speaks again. `gone`: what was to be
   * edited is not there, or not to be edited, any more.
   */
  | { readonly outcome: 'permanent'; readonly error: string; readonly unreachable: boolean; readonly gone?: true };

export interface ChannelHealth {
  readonly ok: boolean;
  /** Last proof of life (completed poll, good callback, accepted send), epoch milliseconds. */
  readonly lastOkAt?: number;
  /** Where the channel polls: when this process completed a poll last, epoch milliseconds. */
  readonly lastPollAt?: number;
  /** One plain sentence when not ok; holds no secret. */
  readonly problem?: string;
}

/** A door the platform knocks at. Bodies are raw text: each platform has its own idea of content types. */
export interface ChannelDoor {
  readonly method: 'GET' | 'POST';
  /** For example `/channels/wecom/callback`. */
  readonly path: string;
  /** Bytes; larger bodies are refused with 413 before they are read. */
  readonly bodyLimit: number;
  open(request: DoorRequest): Promise<DoorAnswer>;
}

export interface DoorRequest {
  /** Decoded once; a repeated parameter is an array. */
  readonly query: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly body: string;
}

export interface DoorAnswer {
  readonly status: number;
  readonly contentType?: string;
  readonly body: string;
}

export interface Channel {
  readonly name: ChannelName;
  readonly account: string;
  /**
   * Cuts a long text into parts the platform accepts, at sensible places and never inside a character; its marks are cut with it. What
   * is too long even for parts becomes its head, its tail and a file. At least one part; the same for the same message.
   */
  split(message: LongText): Part[];
  /** One call to the platform; never throws for what the platform or the network does. */
  send(message: OutgoingMessage, signal: AbortSignal): Promise<SendOutcome>;
  /**
   * Replaces the text of a message that `send` reported under this id; absent where the platform cannot. The same text again is a
   * success, so a repeat after a lost answer is safe.
   */
  edit?(message: OutgoingMessage, platformId: string, signal: AbortSignal): Promise<SendOutcome>;
  health(): ChannelHealth;
  readonly doors: readonly ChannelDoor[];
  /** Starts polling where the channel polls; must not fail because the platform is away. */
  start(): Promise<void>;
  stop(): Promise<void>;
}
