import type { NewMessage } from '../outbox/message.ts';
import { sessionKeyOf } from '../sessions/keys.ts';
import { type Lang, langOf } from '../sessions/lang.ts';
import { type ApprovalAnswer, approvePairing } from '../sessions/pairing.ts';
import type { Role } from '../sessions/rights.ts';
import type { Tx } from '../store/tx.ts';
import { duration, oneLine } from '../text.ts';

export interface ApprovalRooms {
  readonly outbox: { enqueue(tx: Tx, messages: readonly NewMessage[]): Promise<void> };
  /** ERRAND_LANG. */
  readonly lang: 'auto' | Lang;
}

/**
 * Lets the person with this code in and tells them, where they asked, in one transaction. For /pair, the API and the CLI.
 * @param by the actor of the audit entry; the caller has checked that they may administer
 */
export async function approveAndTell(
  tx: Tx,
  rooms: ApprovalRooms,
  approval: { code: string; by: string; role?: Role },
): Promise<ApprovalAnswer> {
  const answer = await approvePairing(tx, approval.code, approval.by, approval.role);
  if (answer.outcome !== 'approved') return answer;
  const { name } = answer.person;
  // Strangers have no conversation yet, so their name is all that shows a language.
  const text = welcomeText(langOf(undefined, name ?? '', rooms.lang), name);
  const sessionKey = sessionKeyOf(answer.route, answer.person.userId);
  await rooms.outbox.enqueue(tx, [{ route: answer.route, sessionKey, kind: 'notice', text }]);
  return answer;
}

/**
 * The whole answer to an unpaired person: the code and what to do with it.
 * @param id how an administrator sees them, `telegram:42`
 */
export function pairingText(
  lang: Lang,
  { code, id, validMs }: { readonly code: string; readonly id: string; readonly validMs: number },
): string {
  const valid = duration(lang, validMs);
  return {
    en: `We have not met yet. Give this code to an administrator, who sends me: /pair approve ${code}\nIt is valid for ${valid}. Your id is ${id}.`,
    zh: `我们还不认识。请把配对码交给管理员，由管理员发送：/pair approve ${code}\n配对码有效期 ${valid}。您的编号是 ${id}。`,
  }[lang];
}

/** The list of waiting strangers is full. */
export function pairingFullText(lang: Lang): string {
  return {
    en: 'We have not met yet, and too many people are waiting to be let in. Please try again later.',
    zh: '我们还不认识，目前等待配对的人太多，请稍后再试。',
  }[lang];
}

function welcomeText(lang: Lang, name: string | null): string {
  const called = oneLine(name ?? '', 60);
  return {
    en: `Welcome${called === '' ? '' : `, ${called}`}! You can send me on errands now. /help lists what I can do.`,
    zh: `${called === '' ? '' : `${called}，`}欢迎！现在可以把事情交给我了。发送 /help 查看用法。`,
  }[lang];
}
