import type { Route } from './channel.ts';

/** At most `max` calls within any `windowMs`. */
export interface RateLimit {
  readonly max: number;
  readonly windowMs: number;
}

/** What one call to a chat counts against. */
export interface SendRates {
  /** Of its chat. */
  readonly chat: readonly RateLimit[];
  /** Of the whole account, all chats together. */
  readonly account: readonly RateLimit[];
}

export type RatesOf = (route: Route) => SendRates | undefined;

/** About one message a second and chat, short bursts allowed; 20 a minute and group; 30 a second in all (Bots FAQ). */
const TELEGRAM_DIRECT: SendRates = {
  chat: [{ max: 3, windowMs: 3_000 }],
  account: [{ max: 30, windowMs: 1_000 }],
};
const TELEGRAM_GROUP: SendRates = {
  ...TELEGRAM_DIRECT,
  chat: [...TELEGRAM_DIRECT.chat, { max: 20, windowMs: 60_000 }],
};
/**
 * 30 a minute and 1,000 an hour for each member (document 90454). What exceeds it is dropped without an error, so a little is left over:
 * a call may arrive earlier or later than it was meant to.
 */
const WECOM_MEMBER: SendRates = {
  chat: [
    { max: 29, windowMs: 61_500 },
    { max: 990, windowMs: 3_610_000 },
  ],
  account: [],
};
/** 20 a minute and group robot (document 91770); the robot is the chat. */
const WECOM_ROBOT: SendRates = { chat: [{ max: 20, windowMs: 61_500 }], account: [] };

/** How fast each platform may be written to; undefined where nothing is called. */
export const platformRates: RatesOf = ({ channel, chatKind }) => {
  const isDirect = chatKind === 'direct';
  switch (channel) {
    case 'telegram':
      return isDirect ? TELEGRAM_DIRECT : TELEGRAM_GROUP;
    case 'wecom':
      return isDirect ? WECOM_MEMBER : WECOM_ROBOT;
    case 'webchat':
      return undefined;
  }
};
