import type { Clock } from '../../clock.ts';
import type { Log } from '../../log.ts';
import type { ChannelPort, OutgoingMessage, SendOutcome } from '../channel.ts';
import type { ApiResult, WecomApi } from './api.ts';
import { judge, TOKEN_ERRCODES } from './errcodes.ts';
import type { WecomHealth } from './health.ts';
import { wecomMarkdown } from './markdown.ts';
import { Uploads } from './media.ts';
import { DUPLICATE_WINDOW_MS, RecentTexts } from './recent.ts';
import type { WecomSettings } from './settings.ts';
import { AccessTokens, type TokenAnswer } from './token.ts';

interface SenderOptions {
  readonly settings: WecomSettings;
  readonly api: WecomApi;
  readonly port: ChannelPort;
  readonly health: WecomHealth;
  readonly clock: Clock;
  readonly log: Log;
  /** Whether looks are shown, which people who read in WeChat instead of WeCom cannot see. */
  readonly markdown: boolean;
}

interface BadToken {
  readonly badToken: string;
  readonly errcode: number;
  readonly errmsg: string;
}

/** What a lost answer means. */
type WithoutError =
  | { readonly outcome: 'unknown'; readonly safe: boolean }
  | { readonly outcome: 'retry'; readonly scope: 'chat' };

/** A media_id that WeCom does not know, or not any more (document 90313). */
const UNKNOWN_MEDIA = 40007;

/** UTF-8 bytes of one text message; WeCom cuts what is longer without an error (document 90236). */
export const WECOM_TEXT_BYTES = 2_048;

/** Sends text messages of the app to one person each: message/send, document 90236. How often is the outbox's to keep (`channels/rates.ts`). */
export class WecomSender {
  readonly #options: SenderOptions;
  readonly #tokens: AccessTokens;
  readonly #recent: RecentTexts;
  readonly #uploads: Uploads;

  constructor(options: SenderOptions) {
    this.#options = options;
    this.#tokens = new AccessTokens(options);
    this.#recent = new RecentTexts(options);
    this.#uploads = new Uploads(options);
  }

  /**
   * One call, two when the access token had been withdrawn, an upload before it where there is a file; where WeCom will never take the
   * file, a text that says where its content is. Never rejects for what the platform or the network does.
   */
  async send(message: OutgoingMessage, signal: AbortSignal): Promise<SendOutcome> {
    const outcome = await this.#send(message, signal);
    if (!message.file || outcome.outcome !== 'permanent') return outcome;
    const { file, marks: _, ...rest } = message;
    return this.#send({ ...rest, text: file.instead }, signal);
  }

  async #send(message: OutgoingMessage, signal: AbortSignal): Promise<SendOutcome> {
    const user = message.route.chat;
    const fault = faultOf(message);
    if (fault) return { outcome: 'permanent', error: fault, unreachable: false };
    const said = message.file ? `${message.file.name}\n${message.file.text}` : message.text;
    const sameTextBefore = await this.#recent.saidBefore(user, said, message.id);
    const outcome = await this.#deliver(message, !sameTextBefore, signal);
    if (outcome.outcome === 'sent' || outcome.outcome === 'unknown') {
      await this.#recent.add(user, said, message.id);
    }
    if (outcome.outcome === 'sent') this.#options.health.sent();
    return outcome;
  }

  async #deliver(message: OutgoingMessage, checked: boolean, signal: AbortSignal): Promise<SendOutcome> {
    const first = await this.#attempt(message, checked, await this.#token(signal), signal);
    if (!('badToken' in first)) return first;
    const second = await this.#attempt(message, checked, await this.#token(signal, first.badToken), signal);
    return 'badToken' in second ? this.#judged(second.errcode, second.errmsg, second.badToken) : second;
  }

  async #attempt(
    message: OutgoingMessage,
    checked: boolean,
    token: TokenAnswer,
    signal: AbortSignal,
  ): Promise<SendOutcome | BadToken> {
    if (!token.ok) return token.outcome;
    const upload = message.file && (await this.#uploads.mediaOf(message, message.file, token.token, signal));
    // What was only uploaded nobody has seen: it can be done again.
    if (upload?.kind === 'failed') return this.#ended(upload.result, token.token, { outcome: 'retry', scope: 'chat' });
    const result = await this.#options.api.call({
      path: '/cgi-bin/message/send',
      query: { access_token: token.token },
      body: this.#body(message, checked, upload?.mediaId),
      signal,
    });
    if (result.kind === 'answer' && result.errcode === 0) return accepted(result.fields, message.route.chat);
    if (upload && result.kind === 'answer' && result.errcode === UNKNOWN_MEDIA) await this.#uploads.forget(message);
    return this.#ended(result, token.token, { outcome: 'unknown', safe: checked && upload?.isKept !== false });
  }

  /** How a call ended that WeCom did not say yes to. @param lost what it means when its answer got lost */
  #ended(result: ApiResult, token: string, lost: WithoutError): SendOutcome | BadToken {
    if (result.kind === 'lost') return { ...lost, error: result.error };
    if (result.kind === 'not_sent') return { outcome: 'retry', error: result.error, scope: 'channel' };
    const { errcode, errmsg } = result;
    if (TOKEN_ERRCODES.has(errcode)) return { badToken: token, errcode, errmsg };
    if (errcode === 0) return { outcome: 'retry', error: 'WeCom gave the file no id', scope: 'chat' };
    return this.#judged(errcode, errmsg, token);
  }

  /** The check is what makes a repeat after a lost answer harmless: WeCom drops the same message within the interval. */
  #body(message: OutgoingMessage, checked: boolean, mediaId: string | undefined): object {
    return {
      touser: message.route.chat,
      agentid: Number(this.#options.settings.agentId),
      ...this.#content(message, mediaId),
      enable_duplicate_check: checked ? 1 : 0,
      duplicate_check_interval: DUPLICATE_WINDOW_MS / 1_000,
    };
  }

  #content(message: OutgoingMessage, mediaId: string | undefined): object {
    if (mediaId !== undefined) return { msgtype: 'file', file: { media_id: mediaId } };
    const markdown = this.#options.markdown ? wecomMarkdown(message) : undefined;
    // The signs count too; without them every part fits.
    return markdown !== undefined && Buffer.byteLength(markdown, 'utf8') <= WECOM_TEXT_BYTES
      ? { msgtype: 'markdown', markdown: { content: markdown } }
      : { msgtype: 'text', text: { content: message.text } };
  }

  /** The fetch of a token serves all callers and goes on when this one gives up. */
  async #token(signal: AbortSignal, bad?: string): Promise<TokenAnswer> {
    const givenUp: TokenAnswer = {
      ok: false,
      outcome: { outcome: 'retry', error: 'stopped before it was sent', scope: 'chat' },
    };
    if (signal.aborted) return givenUp;
    let onAbort: () => void = () => undefined;
    const aborted = new Promise<TokenAnswer>((resolve) => {
      onAbort = () => resolve(givenUp);
      signal.addEventListener('abort', onAbort, { once: true });
    });
    const answer = await Promise.race([this.#tokens.get(bad), aborted]);
    signal.removeEventListener('abort', onAbort);
    return answer;
  }

  #judged(errcode: number, errmsg: string, token: string): SendOutcome {
    const { outcome, problem } = judge(errcode, errmsg, [token, this.#options.settings.secret]);
    if (problem) this.#options.health.trouble(problem);
    this.#options.log.warn('wecom.send_refused', { errcode, outcome: outcome.outcome });
    return outcome;
  }
}

/** What would reach the wrong people or arrive cut; it would be a fault of ours. */
function faultOf(message: OutgoingMessage): string | undefined {
  const { chat, chatKind } = message.route;
  if (chatKind !== 'direct') return 'a self-built WeCom app writes to persons only';
  if (chat === '' || chat.includes('|') || chat.startsWith('@')) return 'the recipient is not a single userid';
  const bytes = Buffer.byteLength(message.text, 'utf8');
  return bytes > WECOM_TEXT_BYTES ? `the text has ${bytes} bytes, WeCom takes ${WECOM_TEXT_BYTES}` : undefined;
}

/** errcode 0 can still mean that this one recipient was left out. */
function accepted(fields: Readonly<Record<string, unknown>>, user: string): SendOutcome {
  if (names(fields.invaliduser).includes(user)) {
    return {
      outcome: 'permanent',
      error: 'WeCom does not know this userid, or it is out of the app’s range',
      unreachable: true,
    };
  }
  if (names(fields.unlicenseduser).includes(user)) {
    return { outcome: 'permanent', error: 'this person has no WeCom interface licence', unreachable: true };
  }
  return { outcome: 'sent', platformId: typeof fields.msgid === 'string' ? fields.msgid : '' };
}

function names(list: unknown): string[] {
  return typeof list === 'string' ? list.toLowerCase().split('|') : [];
}
