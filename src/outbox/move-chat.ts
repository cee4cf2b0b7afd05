import { sessionKeyOf } from '../sessions/keys.ts';
import type { Tx } from '../store/tx.ts';
import type { ChatKey } from './message.ts';
import { MOVES } from './move-queries.ts';

/** A group that goes on under another id, as a Telegram group does that became a supergroup. */
export interface ChatMove extends Pick<ChatKey, 'channel' | 'account'> {
  readonly from: string;
  readonly to: string;
}

/**
 * Writes the new id wherever the old one leads anywhere: what waits to be sent, the conversation with its tasks and flows, the group's
 * permission. Messages of the past keep theirs. Moving again finds nothing to do.
 */
export async function moveChat(tx: Tx, { channel, account, from, to }: ChatMove): Promise<void> {
  if (from === to) return;
  const params = {
    ...{ channel, account, chat: from, to_chat: to },
    old_key: keyOf(channel, account, from),
    new_key: keyOf(channel, account, to),
    old_place: placeIn(from),
    new_place: placeIn(to),
  };
  for (const move of MOVES) await tx.run(move, params);
}

function keyOf(channel: ChatKey['channel'], account: string, chat: string): string {
  return sessionKeyOf({ channel, account, chat, chatKind: 'group' }, undefined);
}

/** As `JSON.stringify` writes it; no other part of a route is called `chat`. */
function placeIn(chat: string): string {
  return `"chat":${JSON.stringify(chat)}`;
}
