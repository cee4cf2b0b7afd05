import type { Clock } from '../../clock.ts';
import { messageOf } from '../../errors.ts';
import { sha256 } from '../../ids.ts';
import type { Log } from '../../log.ts';
import type { ChannelPort, SendOutcome } from '../channel.ts';
import type { WecomApi } from './api.ts';
import { judge } from './errcodes.ts';
import type { WecomHealth } from './health.ts';
import type { WecomSettings } from './settings.ts';

export type TokenAnswer =
  | { readonly ok: true; readonly token: string }
  | { readonly ok: false; readonly outcome: SendOutcome };

interface TokenOptions {
  readonly settings: WecomSettings;
  readonly api: WecomApi;
  readonly port: ChannelPort;
  readonly health: WecomHealth;
  readonly clock: Clock;
  readonly log: Log;
}

interface StoredToken {
  readonly token: string;
  /** From then on a new one is fetched. */
  readonly refreshAt: number;
  /** Of the settings it was fetched with: another secret makes it useless. */
  readonly owner: string;
}

const STATE_KEY = 'access_token';
const EARLY_SECONDS = 300;

/**
 * The app's access token (document 91039): fetching it too often is throttled, so one fetch serves all callers, and it is kept
 * as a state row, so that a restart or another replica uses the same.
 */
export class AccessTokens {
  readonly #options: TokenOptions;
  readonly #owner: string;
  #cached: StoredToken | undefined;
  #fetch: Promise<TokenAnswer> | undefined;
  /** The last refusal, given again until its pause is over. */
  #refusal: { readonly outcome: SendOutcome & { outcome: 'retry' }; readonly until: number } | undefined;

  constructor(options: TokenOptions) {
    this.#options = options;
    const { apiRoot, corpId, agentId, secret } = options.settings;
    this.#owner = sha256(JSON.stringify([apiRoot, corpId, agentId, secret]));
  }

  /**
   * A token that should be good. Never rejects; while there is none, what that means for a message.
   * @param bad a token the platform has refused: neither the memory nor the state row may answer it again
   */
  async get(bad?: string): Promise<TokenAnswer> {
    const cached = this.#cached;
    if (cached && this.#usable(cached, bad)) return { ok: true, token: cached.token };
    this.#fetch ??= this.#find(bad).finally(() => {
      this.#fetch = undefined;
    });
    return this.#fetch;
  }

  async #find(bad: string | undefined): Promise<TokenAnswer> {
    const stored = await this.#stored();
    if (stored && this.#usable(stored, bad)) return this.#adopt(stored);
    const refusal = this.#refusal;
    const waitMs = refusal ? refusal.until - this.#options.clock.now() : 0;
    if (refusal && waitMs > 0) return { ok: false, outcome: { ...refusal.outcome, afterMs: waitMs } };
    return this.#fetchNew();
  }

  async #fetchNew(): Promise<TokenAnswer> {
    const { api, settings, clock, log } = this.#options;
    const result = await api.call({
      path: '/cgi-bin/gettoken',
      query: { corpid: settings.corpId, corpsecret: settings.secret },
    });
    if (result.kind !== 'answer')
      return { ok: false, outcome: { outcome: 'retry', error: `no access token: ${result.error}`, scope: 'channel' } };
    if (result.errcode !== 0) return this.#refused(result.errcode, result.errmsg);
    const { access_token: token, expires_in: seconds } = result.fields;
    if (typeof token !== 'string' || token === '' || typeof seconds !== 'number')
      return this.#refused(-1, 'no access_token in the answer');
    const fresh = {
      token,
      refreshAt: clock.now() + Math.max(seconds - EARLY_SECONDS, seconds / 2) * 1_000,
      owner: this.#owner,
    };
    const answer = this.#adopt(fresh);
    log.info('wecom.token_fetched', { expiresInMs: seconds * 1_000 });
    await this.#store(fresh);
    return answer;
  }

  #adopt(token: StoredToken): TokenAnswer {
    this.#options.log.addSecret(token.token);
    this.#cached = token;
    this.#refusal = undefined;
    return { ok: true, token: token.token };
  }

  #refused(errcode: number, errmsg: string): TokenAnswer {
    const { clock, health, log, settings } = this.#options;
    const { outcome, problem } = judge(errcode, errmsg, [settings.secret]);
    if (problem) health.trouble(problem);
    log.warn('wecom.token_refused', { errcode });
    // No message is to blame for a missing token: whatever the code says of messages, this one waits.
    const waiting = {
      outcome: 'retry',
      error: `no access token: ${errorOf(outcome)}`,
      afterMs: afterOf(outcome),
      scope: 'channel',
    } as const;
    if (waiting.afterMs) this.#refusal = { outcome: waiting, until: clock.now() + waiting.afterMs };
    return { ok: false, outcome: waiting };
  }

  #usable(candidate: StoredToken, bad: string | undefined): boolean {
    return (
      candidate.owner === this.#owner && candidate.token !== bad && candidate.refreshAt > this.#options.clock.now()
    );
  }

  async #stored(): Promise<StoredToken | undefined> {
    try {
      return await this.#options.port.state.get<StoredToken>(STATE_KEY);
    } catch (error) {
      this.#options.log.warn('wecom.token_not_read', { error: messageOf(error) });
      return undefined;
    }
  }

  async #store(token: StoredToken): Promise<void> {
    try {
      await this.#options.port.state.set(STATE_KEY, token);
    } catch (error) {
      this.#options.log.warn('wecom.token_not_stored', { error: messageOf(error) });
    }
  }
}

function errorOf(outcome: SendOutcome): string {
  return outcome.outcome === 'sent' ? '' : outcome.error;
}

function afterOf(outcome: SendOutcome): number | undefined {
  return outcome.outcome === 'retry' ? outcome.afterMs : undefined;
}
