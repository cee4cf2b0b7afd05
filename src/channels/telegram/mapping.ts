import type { Chat, Message, MessageEntity, Update, User } from 'grammy/types';
import type { IncomingMessage, Route, Sender } from '../channel.ts';
import { cleanText } from '../text.ts';

/** The bot itself. The name is unknown until getMe has been answered once; the id is part of the token. */
export interface BotSelf {
  readonly id: number | undefined;
  readonly username: string | undefined;
  /** False: privacy mode is on, and groups show it only commands, mentions and replies. Undefined: not known yet. */
  readonly readsAll?: boolean | undefined;
}

/**
 * One update as a message for the inbox. Never throws and leaves nothing out: what Errand does not act on, and what has no known
 * shape, becomes a message of kind `other`. Rules: Bot API "Update", "Message", "Bot privacy mode".
 */
export function toIncoming(update: Update, account: string, self: BotSelf): IncomingMessage {
  try {
    return mapped(update, account, self);
  } catch {
    return other(update, { channel: 'telegram', account, chat: '0', chatKind: 'group' }, {});
  }
}

function mapped(update: Update, account: string, self: BotSelf): IncomingMessage {
  if (update.callback_query) return buttonPress(update, account, update.callback_query);
  const message = update.message ?? update.channel_post;
  if (message) return fromMessage(update, account, message, self);
  const edited = update.edited_message ?? update.edited_channel_post;
  if (edited) return editedMessage(update, account, edited, self);
  if (update.my_chat_member) {
    const { chat, from, date } = update.my_chat_member;
    return { ...other(update, routeOf(account, { chat }), person(from), date), ...joinOf(update.my_chat_member, self) };
  }
  throw new TypeError('an update without a chat');
}

function fromMessage(update: Update, account: string, message: Message, self: BotSelf): IncomingMessage {
  const route = routeOf(account, message);
  const raw = message.text ?? message.caption;
  if (typeof raw !== 'string') return { ...other(update, route, senderOf(message), message.date), ...moveOf(message) };
  const entities = message.entities ?? message.caption_entities ?? [];
  const { text, mentioned } = withoutMention(raw, entities, self);
  const command = commandOf(text, self);
  const toMe = route.chatKind === 'direct' || command.given || mentioned || isReplyTo(message, self);
  return {
    identity: identityOf(update),
    kind: 'text',
    route,
    sender: senderOf(message),
    text: cleanText(command.text).trim(),
    addressed: toMe && !command.forAnother,
    sentAt: epochMs(message.date),
    ...(message.media_group_id !== undefined && { album: message.media_group_id }),
    ...(route.chatKind === 'group' && self.readsAll === false && /^\/start\b/.test(command.text) && LIMITED_VIEW),
  };
}

const LIMITED_VIEW = { limitedView: true } as const;

/** The same message once more, with other words, or with none that changed. */
function editedMessage(update: Update, account: string, message: Message, self: BotSelf): IncomingMessage {
  const said = fromMessage(update, account, message, self);
  if (said.kind === 'other') return said;
  return { ...said, edited: true, ...(message.edit_date !== undefined && { sentAt: epochMs(message.edit_date) }) };
}

/** The bot was not in this group and is now. */
function joinOf(
  { chat, old_chat_member: old, new_chat_member: now }: NonNullable<Update['my_chat_member']>,
  self: BotSelf,
): Pick<IncomingMessage, 'joined' | 'limitedView'> {
  const isIn = (status: string | undefined) => status === 'member' || status === 'administrator';
  if (chat.type === 'private' || chat.type === 'channel' || isIn(old?.status) || !isIn(now?.status)) return {};
  // Administrators see everything, whatever the privacy mode says.
  return { joined: true, ...(self.readsAll === false && now.status !== 'administrator' && LIMITED_VIEW) };
}

function buttonPress(update: Update, account: string, query: NonNullable<Update['callback_query']>): IncomingMessage {
  // The message is missing for buttons of inline results: then the person is the chat.
  const route: Route = query.message
    ? routeOf(account, query.message)
    : { channel: 'telegram', account, chat: idText(query.from.id), chatKind: 'direct' };
  const text = cleanText(query.data ?? '');
  return { identity: identityOf(update), kind: 'button', route, sender: person(query.from), text, addressed: true };
}

function other(update: Update, route: Route, sender: Sender, date?: number): IncomingMessage {
  const base = { identity: identityOf(update), kind: 'other', route, sender, text: '', addressed: false } as const;
  return typeof date === 'number' ? { ...base, sentAt: epochMs(date) } : base;
}

/** A group that became a supergroup: said in the old one with the new id, and in the new one with the old id. */
function moveOf(message: Message): Pick<IncomingMessage, 'moved'> {
  const here = idText(message.chat.id);
  if (message.migrate_to_chat_id !== undefined)
    return { moved: { from: here, to: idText(message.migrate_to_chat_id) } };
  if (message.migrate_from_chat_id === undefined) return {};
  return { moved: { from: idText(message.migrate_from_chat_id), to: here } };
}

function identityOf(update: Update): string {
  return `update:${update.update_id}`;
}

/** Ids are integers of up to 52 bits; anything else is not of Telegram and must not become somebody. */
function idText(id: unknown): string {
  if (!Number.isSafeInteger(id)) throw new TypeError('an id that is no integer');
  return `${id}`;
}

function epochMs(seconds: number): number {
  return seconds * 1000;
}

interface Placed {
  readonly chat: Chat;
  readonly message_id?: number;
  readonly message_thread_id?: number;
  readonly is_topic_message?: boolean;
}

/** The thread only of real topic messages: the General topic and plain reply threads carry an id that cannot be sent to. */
function routeOf(account: string, place: Placed): Route {
  const thread =
    place.is_topic_message && place.message_thread_id !== undefined ? idText(place.message_thread_id) : undefined;
  return {
    channel: 'telegram',
    account,
    chat: idText(place.chat.id),
    chatKind: place.chat.type === 'private' ? 'direct' : 'group',
    ...(thread !== undefined && { thread }),
    ...(place.message_id !== undefined && { messageId: idText(place.message_id) }),
  };
}

/** Anonymous admins and channels speak as a chat (`sender_chat`) behind a bot's account: nobody who could have rights. */
function senderOf(message: Message): Sender {
  if (message.sender_chat || !message.from || message.from.is_bot) {
    const name =
      message.author_signature ??
      (message.sender_chat && 'title' in message.sender_chat ? message.sender_chat.title : undefined);
    return name === undefined ? {} : { name: cleanText(name) };
  }
  return person(message.from);
}

function person(user: User): Sender {
  const name = cleanText([user.first_name, user.last_name].filter(Boolean).join(' ') || (user.username ?? '')).trim();
  const id = idText(user.id);
  return name === '' ? { id } : { id, name };
}

function isReplyTo(message: Message, self: BotSelf): boolean {
  const replied = message.reply_to_message;
  // A topic's first message counts as "replied to" in every message of the topic; only a person's reply is meant.
  if (!replied?.from || replied.forum_topic_created) return false;
  return self.id !== undefined ? replied.from.id === self.id : sameName(replied.from.username, self);
}

/** Cuts every mention of the bot out; entity offsets count UTF-16 units, as JavaScript does. */
function withoutMention(
  text: string,
  entities: readonly MessageEntity[],
  self: BotSelf,
): { text: string; mentioned: boolean } {
  const mine = entities.filter((entity) => isMention(text, entity, self)).sort((a, b) => b.offset - a.offset);
  let rest = text;
  for (const { offset, length } of mine) {
    rest = rest.slice(0, offset).trimEnd() + (offset > 0 ? ' ' : '') + rest.slice(offset + length).trimStart();
  }
  return { text: rest, mentioned: mine.length > 0 };
}

function isMention(text: string, entity: MessageEntity, self: BotSelf): boolean {
  if (entity.type === 'text_mention') return self.id !== undefined && entity.user.id === self.id;
  return entity.type === 'mention' && sameName(text.slice(entity.offset + 1, entity.offset + entity.length), self);
}

const COMMAND = /^(\s*\/[A-Za-z0-9_]{1,64})(?:@([A-Za-z0-9_]+))?(?=\s|$)/;

/** `/cmd@me` loses its suffix. While the bot's own name is unknown every suffix counts as another bot's: better deaf than wrong. */
function commandOf(text: string, self: BotSelf): { text: string; given: boolean; forAnother: boolean } {
  const match = COMMAND.exec(text);
  if (!match) return { text, given: false, forAnother: false };
  const suffix = match[2];
  if (suffix === undefined) return { text, given: true, forAnother: false };
  const mine = sameName(suffix, self);
  return { text: mine ? match[1] + text.slice(match[0].length) : text, given: true, forAnother: !mine };
}

function sameName(name: string | undefined, self: BotSelf): boolean {
  return name !== undefined && name.toLowerCase() === self.username?.toLowerCase();
}
