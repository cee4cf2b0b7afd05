import type { ChannelName, Route } from '../channels/channel.ts';
import { parseCommand } from '../commands/command.ts';
import { pairingFullText, pairingText } from '../notifications/pairing.ts';
import {
  anonymousText,
  groupClosedText,
  idShown,
  revokedText,
  strangerInGroupText,
} from '../notifications/refusals.ts';
import { type Access, accessIn } from '../sessions/access.ts';
import { type Lang, langOf } from '../sessions/lang.ts';
import { requestPairing } from '../sessions/pairing.ts';
import { GROUP_MS, mayTell, PERSON_MS, type Told } from '../sessions/refusals.ts';
import type { Role } from '../sessions/rights.ts';
import type { Tx } from '../store/tx.ts';
import type { RefusalReason } from '../telemetry/refusals.ts';
import { isForClosedGroups } from './answer.ts';
import type { NewInboxRow } from './queries.ts';
import { ignored, refused, type Verdict } from './verdict.ts';

/** A person with a role, in a chat that is open to them. */
export interface Admitted {
  readonly userId: string;
  readonly role: Role;
}

/** Who is at the door. */
interface Knock {
  readonly row: NewInboxRow;
  readonly route: Route;
  readonly text: string;
  /** ERRAND_LANG. */
  readonly lang: 'auto' | Lang;
}

/**
 * Whether a message that is meant for the bot is acted on: the chat has to be open and the person let in, and a group may want commands
 * alone. Else what became of it: silence where the group wants that, one polite line where it has not been said just now.
 */
export async function admit(tx: Tx, knock: Knock): Promise<Admitted | Verdict> {
  const { row, route, text } = knock;
  const access = await accessIn(tx, route, row.sender_id ?? undefined);
  const opensGroup = access.role === 'admin' && isForClosedGroups(text);
  if (access.group === 'off' && !opensGroup) return ignored('group_off');
  if (access.group === 'commands' && row.kind !== 'button' && !parseCommand(text)) return ignored('commands_only');
  if (row.sender_id === null) return refuse(tx, knock, access, 'anonymous');
  if (access.role === null)
    return access.revoked ? refuse(tx, knock, access, 'revoked') : stranger(tx, knock, access, row.sender_id);
  if (!access.chatAllowed && !isForClosedGroups(text)) return refuse(tx, knock, access, 'group_not_allowed');
  return { userId: row.sender_id, role: access.role };
}

/** In a direct chat a code and nothing else, silence while the last one is fresh; groups do not see codes. */
async function stranger(tx: Tx, knock: Knock, access: Access, userId: string): Promise<Verdict> {
  const { row, route } = knock;
  if (route.chatKind === 'group') return refuse(tx, knock, access, 'not_paired');
  const asked = await requestPairing(tx, {
    ...{ channel: row.channel as ChannelName, account: row.account, userId, route },
    ...(row.sender_name === null ? {} : { name: row.sender_name }),
  });
  const lang = langFor(knock);
  if (asked.outcome === 'code') {
    const id = idShown(row.channel, userId);
    return refused('not_paired', pairingText(lang, { code: asked.code, id, validMs: asked.expiresAt - tx.now }));
  }
  const tell = asked.outcome === 'full' && (await isNews(tx, knock, 'full'));
  return refused('not_paired', tell ? pairingFullText(lang) : undefined);
}

/** A group that nobody has opened hears of nothing but that, and only from people we know. */
async function refuse(tx: Tx, knock: Knock, access: Access, reason: RefusalReason): Promise<Verdict> {
  const mayHear = access.chatAllowed || reason === 'group_not_allowed';
  if (!mayHear || !(await isNews(tx, knock, reason))) return refused(reason, undefined);
  const lang = langFor(knock);
  const id = idShown(knock.row.channel, knock.row.sender_id ?? '');
  switch (reason) {
    case 'anonymous':
      return refused(reason, anonymousText(lang));
    case 'revoked':
      return refused(reason, revokedText(lang, id));
    case 'not_paired':
      return refused(reason, strangerInGroupText(lang, id));
    default:
      return refused(reason, groupClosedText(lang, id));
  }
}

/** Whether they have not been told of it for a while, nor their group of anything. */
function isNews(tx: Tx, { row, route }: Knock, reason: string): Promise<boolean> {
  const place = { channel: row.channel, account: row.account };
  const told: Told[] = [{ ...place, whom: `user:${row.sender_id ?? ''}:${reason}`, everyMs: PERSON_MS }];
  if (route.chatKind === 'group') told.push({ ...place, whom: `chat:${route.chat}`, everyMs: GROUP_MS });
  return mayTell(tx, told);
}

function langFor({ text, lang }: Knock): Lang {
  return langOf(undefined, text, lang);
}
