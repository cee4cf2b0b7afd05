import type { Route } from '../channels/channel.ts';

/**
 * The identity of a conversation: `agent:<profile>:<channel>[:<account>]:direct:<user>`, `…:group:<chat>`, with `:topic:<n>` in a
 * forum topic; the account is left out when it is `default`. Direct chats belong to the person, groups to the chat. Colons, percent
 * signs and blanks inside a part are percent-encoded, so that two conversations never share a key. Never parsed back: the way
 * to a conversation is its stored route.
 * @param senderId the person; falls back to the chat, which is the person in direct chats
 */
export function sessionKeyOf(route: Route, senderId: string | undefined, profile = 'main'): string {
  const place = ['agent', profile, route.channel, ...(route.account === 'default' ? [] : [route.account])];
  const whose = route.chatKind === 'group' ? ['group', route.chat] : ['direct', senderId ?? route.chat];
  const topic = route.thread === undefined ? [] : ['topic', route.thread];
  return [...place, ...whose, ...topic].map(encodePart).join(':');
}

/** A guess at where a conversation is, for what would otherwise cost a look at a row; the stored route decides. */
export function channelHint(sessionKey: string): string | undefined {
  const from = sessionKey.indexOf(':', sessionKey.indexOf(':') + 1) + 1;
  const to = sessionKey.indexOf(':', from);
  return from > 1 && to > from ? sessionKey.slice(from, to) : undefined;
}

function encodePart(part: string): string {
  return part.replace(/[:%\s]/g, encodeURIComponent);
}
