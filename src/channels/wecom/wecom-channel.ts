import type { Clock } from '../../clock.ts';
import type { Log } from '../../log.ts';
import type { Channel, ChannelPort } from '../channel.ts';
import { split } from '../text.ts';
import { WecomApi } from './api.ts';
import { callbackDoors } from './callback.ts';
import { WecomHealth } from './health.ts';
import { WECOM_TEXT_BYTES, WecomSender } from './sender.ts';
import { checkWecomSettings, type WecomSettings } from './settings.ts';

export type WecomChannelOptions = Omit<WecomSettings, 'apiRoot'> & {
  /** Default: https://qyapi.weixin.qq.com. */
  readonly apiRoot?: string;
  /** How far a callback's timestamp may be from the clock; `off` for replaying old samples. */
  readonly timestampWindowMs: number | 'off';
  /** Which account of the channel; `default` where there is one. */
  readonly account: string;
  readonly port: ChannelPort;
  /** `off` for people who read in WeChat, where messages with a look cannot be seen. Default: on. */
  readonly markdown?: 'on' | 'off';
  readonly clock: Clock;
  readonly log: Log;
  /** Longest wait for a connection, and again for an answer. Default 10 s. */
  readonly requestTimeoutMs?: number;
};

/** More is head, tail and a file. */
const MOST_PARTS = 3;

const REQUEST_TIMEOUT_MS = 10_000;

/**
 * The WeCom (企业微信) self-built app: messages come in through an encrypted callback, answers go out through message/send.
 * Nothing polls, so starting touches no network.
 * @throws SettingsError naming every variable that is wrong; the key is tried out
 */
export function createWecomChannel(options: WecomChannelOptions): Channel {
  const settings = checkWecomSettings(options);
  const { account, clock, log, port, timestampWindowMs } = options;
  for (const secret of [settings.secret, settings.token, settings.encodingAesKey]) log.addSecret(secret);
  const health = new WecomHealth(clock);
  const api = new WecomApi(settings.apiRoot, options.requestTimeoutMs ?? REQUEST_TIMEOUT_MS, health);
  const sender = new WecomSender({ settings, api, port, health, clock, log, markdown: options.markdown !== 'off' });
  return {
    name: 'wecom',
    account,
    split: (message) => split(message, { max: WECOM_TEXT_BYTES, measure: 'utf8', mostParts: MOST_PARTS }),
    send: (message, signal) => sender.send(message, signal),
    health: () => health.read(),
    doors: callbackDoors({ settings, account, timestampWindowMs, port, health, clock, log }),
    start: async () => undefined,
    stop: () => api.close(),
  };
}
