import { type Api, InputFile } from 'grammy';
import { messageOf } from '../../errors.ts';
import { type Log, redact } from '../../log.ts';
import type { OutgoingMessage, SendOutcome, TextFile } from '../channel.ts';
import { type CallFailure, failureOf } from './api.ts';
import { entitiesOf } from './entities.ts';
import type { Floods } from './floods.ts';
import type { Pulse } from './pulse.ts';

export interface SenderOptions {
  readonly api: Api;
  readonly token: string;
  readonly pulse: Pulse;
  readonly log: Log;
  /** How long the whole account is held when the token is refused, milliseconds. */
  readonly refusedMs: number;
  readonly floods: Floods;
}

type TextPayload = Parameters<Api['raw']['sendMessage']>[0];
type FilePayload = Parameters<Api['raw']['sendDocument']>[0];
type Payload = TextPayload | FilePayload;

/** Telegram's text limit: 4096 UTF-16 units after parsing entities (Bot API, sendMessage). */
export const TEXT_LIMIT = 4096;

/**
 * One part of a message, as text or as a file; where Telegram will never take the file, one more call says where its text is. Never
 * throws.
 */
export async function sendPart(
  options: SenderOptions,
  message: OutgoingMessage,
  signal: AbortSignal,
): Promise<SendOutcome> {
  if (!message.file) return send(options, message, textPayload(message), signal);
  const outcome = await send(options, message, filePayload(message, message.file), signal);
  if (outcome.outcome !== 'permanent') return outcome;
  const { file, id } = message;
  options.log.warn('telegram.file_refused', { id, why: outcome.error });
  return send(options, message, textPayload({ ...message, text: file.instead, marks: [] }), signal);
}

/**
 * One call; at most once more each without a topic that is gone (the chat is told), to the chat a group has become, and without a look
 * that Telegram does not understand.
 */
async function send(
  options: SenderOptions,
  message: OutgoingMessage,
  first: Payload,
  signal: AbortSignal,
): Promise<SendOutcome> {
  if (signal.aborted) return NOT_SENT;
  let payload = first;
  for (;;) {
    const result = await attempt(options, () => post(options.api, payload, signal));
    if (!('kind' in result)) {
      options.floods.written(message.route.chat);
      return movedOutcome(result, message, payload);
    }
    const corrected = correction(payload, result);
    if (!corrected) return outcomeOf(options, result, message.route.chat);
    options.log.warn('telegram.send_corrected', {
      id: message.id,
      chat: payload.chat_id,
      now: corrected.chat_id,
      why: result.text,
    });
    payload = corrected;
  }
}

/** One `editMessageText`. The text being there already is a success. Never throws. */
export async function editText(
  options: SenderOptions,
  message: OutgoingMessage,
  platformId: string,
  signal: AbortSignal,
): Promise<SendOutcome> {
  if (signal.aborted) return NOT_SENT;
  let payload = editPayload(message, Number(platformId));
  let result = await attempt(options, () => options.api.raw.editMessageText(payload, signal as never));
  if ('kind' in result && isLookRefused(result) && payload.entities) {
    const { entities: _plain, ...rest } = payload;
    payload = rest;
    result = await attempt(options, () => options.api.raw.editMessageText(payload, signal as never));
  }
  if (!('kind' in result)) {
    options.floods.written(message.route.chat);
    return { outcome: 'sent', platformId };
  }
  if (result.kind === 'refused' && result.code === 400) {
    if (/message is not modified/i.test(result.text)) return { outcome: 'sent', platformId };
    // Ids of messages begin anew in a supergroup.
    if (NOT_EDITABLE.test(result.text) || result.migrateTo !== undefined) {
      return { outcome: 'permanent', error: result.text, unreachable: false, gone: true };
    }
  }
  return outcomeOf(options, result, message.route.chat);
}

const NOT_SENT: SendOutcome = { outcome: 'retry', error: 'stopped before it was sent', scope: 'chat' };
const NOT_EDITABLE = /message to edit not found|message can't be edited|MESSAGE_ID_INVALID/i;

function post(api: Api, payload: Payload, signal: AbortSignal): Promise<unknown> {
  return 'document' in payload
    ? api.raw.sendDocument(payload, signal as never)
    : api.raw.sendMessage(payload, signal as never);
}

async function attempt(
  options: SenderOptions,
  call: () => Promise<unknown>,
): Promise<(SendOutcome & { outcome: 'sent' }) | CallFailure> {
  try {
    const sent = (await call()) as { message_id?: number } | true | undefined;
    options.pulse.ok('token');
    const id = typeof sent === 'object' ? sent.message_id : undefined;
    return { outcome: 'sent', platformId: String(id ?? 'unknown') };
  } catch (error) {
    const fault = redact(messageOf(error), [options.token]);
    return failureOf(error, options.token) ?? { kind: 'lost', text: fault };
  }
}

function movedOutcome(
  sent: SendOutcome & { outcome: 'sent' },
  { route }: OutgoingMessage,
  { chat_id }: Payload,
): SendOutcome {
  const now = String(chat_id);
  return now === route.chat ? sent : { ...sent, movedTo: now };
}

function textPayload(message: OutgoingMessage): TextPayload {
  const entities = entitiesOf(message.marks ?? []);
  return {
    ...placeOf(message),
    text: message.text,
    link_preview_options: { is_disabled: true },
    ...(entities.length > 0 && { entities }),
  };
}

function editPayload(message: OutgoingMessage, message_id: number): Parameters<Api['raw']['editMessageText']>[0] {
  const entities = entitiesOf(message.marks ?? []);
  return {
    chat_id: chatId(message.route.chat),
    message_id,
    text: message.text,
    link_preview_options: { is_disabled: true },
    ...(entities.length > 0 && { entities }),
  };
}

function filePayload(message: OutgoingMessage, { name, text }: TextFile): FilePayload {
  return { ...placeOf(message), document: new InputFile(Buffer.from(text, 'utf8'), name), caption: message.text };
}

/** Where it goes and what it answers. */
function placeOf(message: OutgoingMessage) {
  const { chat, thread, messageId } = message.route;
  return {
    chat_id: chatId(chat),
    ...(thread !== undefined && { message_thread_id: Number(thread) }),
    ...(message.first &&
      messageId !== undefined && {
        reply_parameters: { message_id: Number(messageId), allow_sending_without_reply: true },
      }),
  };
}

/** Chat ids have up to 52 significant bits (Bot API, Chat): they fit a number. */
function chatId(chat: string): number | string {
  return /^-?\d{1,16}$/.test(chat) ? Number(chat) : chat;
}

/** Another payload worth one try, or undefined. Each correction can apply only once: it removes its own cause. */
function correction(payload: Payload, failure: CallFailure): Payload | undefined {
  if (failure.kind !== 'refused' || failure.code !== 400) return undefined;
  if (payload.message_thread_id !== undefined && /message thread not found/i.test(failure.text)) {
    const { message_thread_id: _gone, ...rest } = payload;
    return 'document' in rest ? rest : { ...rest, text: withNote(rest.text) };
  }
  if (failure.migrateTo !== undefined && isGroupOfOld(payload.chat_id)) {
    return { ...payload, chat_id: failure.migrateTo };
  }
  if ('entities' in payload && payload.entities !== undefined && isLookRefused(failure)) {
    const { entities: _plain, ...rest } = payload;
    return rest;
  }
  return undefined;
}

const TOPIC_GONE = '\n\n(the topic of this answer is gone / 原话题已不存在)';

/** Said where there is room for it; behind the text, so that formats stay where they are. */
function withNote(text: string): string {
  return text.length + TOPIC_GONE.length <= TEXT_LIMIT ? text + TOPIC_GONE : text;
}

/** "can't parse entities", "entity begins in a middle of a UTF-16 symbol": the text is worth more than its look. */
function isLookRefused(failure: CallFailure): boolean {
  return failure.kind === 'refused' && failure.code === 400 && /entit/i.test(failure.text);
}

/** Only basic groups migrate; supergroups (below -10^12) never do again. */
function isGroupOfOld(chat: number | string): boolean {
  return typeof chat === 'number' && chat > -1_000_000_000_000;
}

function outcomeOf(options: SenderOptions, failure: CallFailure, chat: string): SendOutcome {
  if (failure.kind === 'unreached') return { outcome: 'retry', error: failure.text, scope: 'channel' };
  if (failure.kind === 'lost') return { outcome: 'unknown', error: failure.text, safe: false };
  const { code, text: error, retryAfterMs } = failure;
  if (code === 429) {
    const scope = options.floods.isOfWholeBot(chat, retryAfterMs) ? 'channel' : 'chat';
    return { outcome: 'retry', error, scope, ...(retryAfterMs !== undefined && { afterMs: retryAfterMs }) };
  }
  if (code === 401 || code === 404) {
    options.pulse.fail('token', TOKEN_REFUSED);
    return { outcome: 'retry', error, scope: 'channel', afterMs: options.refusedMs };
  }
  // A gateway that got tired of waiting has already passed the request on.
  if (code === 504) return { outcome: 'unknown', error, safe: false };
  if (code >= 500) return { outcome: 'retry', error, scope: 'chat' };
  return { outcome: 'permanent', error, unreachable: code === 403 || UNREACHABLE.test(error) };
}

/** Said by health when Telegram does not know the token (401, or 404 for a malformed one). */
export const TOKEN_REFUSED = 'Telegram refuses the bot token.';

/** Descriptions of 400s that no other text would escape (texts of the Bot API server). */
const UNREACHABLE =
  /chat not found|user not found|deactivated|was kicked|chat was deleted|not enough rights|have no rights|need administrator rights|CHAT_WRITE_FORBIDDEN|PEER_ID_INVALID|CHAT_RESTRICTED/i;
