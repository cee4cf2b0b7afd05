import type { Channel, ChannelName, OutgoingMessage, SendOutcome } from '../../src/channels/channel.ts';

type Answer = (message: OutgoingMessage, signal: AbortSignal) => SendOutcome | Promise<SendOutcome>;

/** The platform's side of the channel port: records every call and answers as told; parts end at `|`, or at `max` characters. */
export interface ScriptedChannel extends Channel {
  readonly calls: readonly OutgoingMessage[];
  /** The texts of the calls, in order. */
  texts(): string[];
  /** The texts that got to this chat. */
  arrived(chat: string): string[];
  /** How the next calls are answered, one after the other; then as `otherwise` says. */
  next(...answers: (SendOutcome | Answer)[]): void;
  /** How a call is answered that has no answer of its own; at first every message is accepted. */
  otherwise(answer: Answer): void;
}

export function scriptedChannel(name: ChannelName = 'telegram', account = 'default', max = 1_000): ScriptedChannel {
  const calls: OutgoingMessage[] = [];
  const delivered: OutgoingMessage[] = [];
  const script: (SendOutcome | Answer)[] = [];
  let standard: Answer = () => ({ outcome: 'sent', platformId: `p${calls.length}` });
  return {
    name,
    account,
    calls,
    texts: () => calls.map((call) => call.text),
    arrived: (chat) => delivered.filter((call) => call.route.chat === chat).map((call) => call.text),
    next: (...answers) => void script.push(...answers),
    otherwise: (answer) => {
      standard = answer;
    },
    split: ({ text }) =>
      text
        .split('|')
        .flatMap((part) => part.match(new RegExp(`[^]{1,${max}}`, 'g')) ?? [''])
        .map((part) => ({ text: part })),
    async send(message, signal) {
      calls.push(message);
      const answer = script.shift() ?? standard;
      const outcome = typeof answer === 'function' ? await answer(message, signal) : answer;
      if (outcome.outcome === 'sent') delivered.push(message);
      return outcome;
    },
    health: () => ({ ok: true }),
    doors: [],
    start: async () => undefined,
    stop: async () => undefined,
  };
}
