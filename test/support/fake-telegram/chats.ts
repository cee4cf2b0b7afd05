import { badRequest, type Json, Refusal, type ShownMessage } from './answers.ts';
import { checkEntities } from './entities.ts';

export interface SendingUser {
  id: number;
  first_name?: string;
  last_name?: string;
  username?: string;
  is_bot?: boolean;
}

export interface UserMessage {
  chat: number;
  user: number | SendingUser;
  text: string;
  /** Default: `private` for positive chat ids, `supergroup` for others. */
  chatType?: 'private' | 'group' | 'supergroup' | 'channel';
  /** With `topic: false` the id comes without `is_topic_message`, as in plain reply threads. */
  thread?: number;
  topic?: boolean;
  replyTo?: Json;
  /** Further fields of the message; override the others. */
  extra?: Json;
}

interface Chat {
  messages: ShownMessage[];
  blocked?: string;
  migratedTo?: number;
  closedThreads: Set<number>;
}

/** The chats of one bot: what was said, who blocked it, what became of a group. */
export class Chats {
  readonly #chats = new Map<number, Chat>();
  /** Telegram knows only chats somebody has written in; off for tests that do not care. */
  strict = false;
  #nextMessageId = 100;
  readonly #dateOf: (messageId: number) => number;

  /** @param dateOf when people say things, epoch seconds; default: in 2023 */
  constructor(dateOf = (messageId: number) => 1_700_000_000 + messageId) {
    this.#dateOf = dateOf;
  }

  /** Also makes the chat known. */
  of(id: number): Chat {
    let chat = this.#chats.get(id);
    if (!chat) {
      chat = { messages: [], closedThreads: new Set() };
      this.#chats.set(id, chat);
    }
    return chat;
  }

  fromUser(said: UserMessage): Json {
    const user = typeof said.user === 'number' ? { id: said.user } : said.user;
    const type = said.chatType ?? (said.chat > 0 ? 'private' : 'supergroup');
    const message = {
      message_id: this.#nextMessageId,
      from: { is_bot: false, first_name: `User ${user.id}`, ...user },
      chat: {
        id: said.chat,
        type,
        ...(type === 'private' ? { first_name: `User ${user.id}` } : { title: `Chat ${said.chat}` }),
      },
      date: this.#dateOf(this.#nextMessageId),
      text: said.text,
      ...entitiesOf(said.text),
      ...(said.thread !== undefined && { message_thread_id: said.thread }),
      ...(said.thread !== undefined && said.topic !== false && { is_topic_message: true }),
      ...(said.replyTo && { reply_to_message: said.replyTo }),
      ...said.extra,
    };
    this.#nextMessageId += 1;
    this.of(said.chat).messages.push({ message_id: message.message_id, from: user.id, text: said.text });
    return message;
  }

  sendMessage(params: Json): Json {
    const chatId = Number(params.chat_id);
    const chat = this.#open(chatId);
    const text = checkedText(params.text);
    checkEntities(text, params.entities);
    return this.#show(chatId, chat, text, params);
  }

  /** The caption is its text; the document as it was uploaded. */
  sendDocument(params: Json): Json {
    const chatId = Number(params.chat_id);
    const chat = this.#open(chatId);
    const document = params.document as ShownMessage['document'];
    if (!document) throw badRequest('there is no document in the request');
    if (document.content === '') throw badRequest('file must be non-empty');
    const caption = String(params.caption ?? '');
    if (caption.length > 1024) throw badRequest('message caption is too long');
    checkEntities(caption, params.caption_entities);
    return this.#show(chatId, chat, caption, params, document);
  }

  #show(chatId: number, chat: Chat, text: string, params: Json, document?: ShownMessage['document']): Json {
    const thread = params.message_thread_id as number | undefined;
    // Thread 1 is how updates name the General topic; it cannot be sent to.
    if (thread !== undefined && (thread === 1 || chat.closedThreads.has(thread)))
      throw badRequest('message thread not found');
    const reply = params.reply_parameters as { message_id: number; allow_sending_without_reply?: boolean } | undefined;
    const repliedTo = reply && chat.messages.find((message) => message.message_id === reply.message_id);
    if (reply && !repliedTo && !reply.allow_sending_without_reply) throw badRequest('message to be replied not found');
    const shown: ShownMessage = {
      message_id: this.#nextMessageId,
      from: 'bot',
      text,
      ...(thread !== undefined && { thread }),
      ...(repliedTo && { replyTo: repliedTo.message_id }),
      sentWith: params,
      ...(document && { document }),
    };
    this.#nextMessageId += 1;
    chat.messages.push(shown);
    return asMessage(chatId, shown);
  }

  editMessageText(params: Json): Json {
    const chatId = Number(params.chat_id);
    const shown = this.#open(chatId).messages.find(
      (message) => message.message_id === params.message_id && message.from === 'bot',
    );
    if (!shown) throw badRequest('message to edit not found');
    const text = checkedText(params.text);
    checkEntities(text, params.entities);
    const isSame = JSON.stringify(params.entities ?? []) === JSON.stringify(shown.sentWith?.entities ?? []);
    if (text === shown.text && isSame) {
      throw badRequest(
        'message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message',
      );
    }
    shown.text = text;
    shown.sentWith = params;
    return asMessage(chatId, shown);
  }

  #open(id: number): Chat {
    if (this.strict && !this.#chats.has(id)) throw badRequest('chat not found');
    const chat = this.of(id);
    if (chat.blocked !== undefined) throw new Refusal(403, `Forbidden: ${chat.blocked}`);
    if (chat.migratedTo !== undefined) {
      throw badRequest('group chat was upgraded to a supergroup chat', { migrate_to_chat_id: chat.migratedTo });
    }
    return chat;
  }
}

function checkedText(text: unknown): string {
  if (typeof text !== 'string' || text.trim() === '') throw badRequest('message text is empty');
  if (/\p{Cs}/u.test(text)) throw badRequest('strings must be encoded in UTF-8');
  if (text.length > 4096) throw badRequest('message is too long');
  return text;
}

/** Commands and mentions, found as Telegram finds them; offsets in UTF-16 units. */
function entitiesOf(text: string): Json {
  const entities = [...text.matchAll(/(?<![\w/@])(?:\/[a-zA-Z0-9_]{1,32}(?:@\w{3,32})?|@\w{3,32})(?!\w)/g)].map(
    (match) => ({
      type: match[0].startsWith('/') ? 'bot_command' : 'mention',
      offset: match.index,
      length: match[0].length,
    }),
  );
  return entities.length > 0 ? { entities } : {};
}

function asMessage(chatId: number, shown: ShownMessage): Json {
  return {
    message_id: shown.message_id,
    date: 1_700_000_000,
    chat: { id: chatId, type: chatId > 0 ? 'private' : 'supergroup' },
    text: shown.text,
  };
}
