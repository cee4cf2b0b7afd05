import type { ChannelName, Route } from '../channels/channel.ts';
import { randomCode, sha256 } from '../ids.ts';
import type { Tx } from '../store/tx.ts';
import { getPerson, type Person, type PersonKey, personOf, personText } from './access.ts';
import { audit } from './audit.ts';
import {
  countAudit,
  countPairings,
  deleteExpiredPairings,
  deletePairing,
  insertPairing,
  oldestPairing,
  pairingByHash,
  pairingByUser,
  upsertPerson,
} from './queries.ts';
import { DEFAULT_ROLE, type Role } from './rights.ts';

const CODE_CHARS = 8;
/** How long a code is good for. */
const PAIRING_MS = 3_600_000;
/** A person gets at most one new code in this time. */
const NEW_CODE_MS = 60_000;
/** People who wait, per channel account: strangers cannot fill the list without end. */
export const MAX_PENDING = 100;
/** So long a code cannot be pushed out by others who ask; after it the longest wait makes room. So nobody can shut the door for long. */
export const SURE_MS = 600_000;
/** Wrong codes of one approver within `WRONG_CODE_MS`. */
const MAX_WRONG_CODES = 5;
const WRONG_CODE_MS = 600_000;

export interface PairingRequest extends PersonKey {
  readonly name?: string;
  /** Where to tell the person that it was approved. */
  readonly route: Route;
}

export type PairingAnswer =
  /** Tell the person; it is stored nowhere but as a hash. It replaces an earlier code. */
  | { readonly outcome: 'code'; readonly code: string; readonly expiresAt: number }
  /** The last code is younger than a minute: say nothing, or that it is on its way. */
  | { readonly outcome: 'already_sent'; readonly code: undefined; readonly alreadySentAt: number }
  /** Too many wait, all of them for a short time: tell the person to try later. */
  | { readonly outcome: 'full'; readonly code: undefined }
  /** Nothing to pair. A revoked person is let in again by a role only. */
  | { readonly outcome: 'paired' | 'revoked'; readonly code: undefined };

/** A stranger asks to be let in. Gives no right: somebody who may administer has to approve the code. */
export async function requestPairing(tx: Tx, request: PairingRequest): Promise<PairingAnswer> {
  const person = await getPerson(tx, request);
  if (person) return { outcome: person.revokedAt === null ? 'paired' : 'revoked', code: undefined };
  await deleteExpiredPairings(tx);
  const key = { channel: request.channel, account: request.account, user: request.userId };
  const [pending] = await pairingByUser(tx, key);
  if (pending && tx.now - pending.created_at < NEW_CODE_MS) {
    return { outcome: 'already_sent', code: undefined, alreadySentAt: pending.created_at };
  }
  if (pending) await deletePairing(tx, key);
  else if (!(await makeRoom(tx, key))) return { outcome: 'full', code: undefined };
  const code = randomCode(CODE_CHARS);
  const expiresAt = tx.now + PAIRING_MS;
  const route = JSON.stringify(request.route);
  const id = await tx.ids(1);
  await insertPairing(tx, { ...key, id, name: request.name ?? null, route, codeHash: sha256(code), expiresAt });
  return { outcome: 'code', code, expiresAt };
}

export type ApprovalAnswer =
  /** `route` is where the person asked. */
  | { readonly outcome: 'approved'; readonly person: Person; readonly route: Route }
  /** No pending pairing has this code: mistyped, used, replaced by a newer one, or over. */
  | { readonly outcome: 'unknown_code' }
  /** This approver has tried too many wrong codes; also right ones are refused until the time is over. */
  | { readonly outcome: 'too_many_wrong_codes'; readonly retryAfterMs: number };

/**
 * Lets the person in who was given this code. The caller checks that `by` may administer.
 * A code has 40 random bits, lives an hour and at most 100 wait per account; it is found by its hash, so comparing tells nothing.
 * Five wrong codes per approver in ten minutes leave a guesser 30 tries an hour: a chance below one in 300 million.
 * @param by the actor of the audit entry
 */
export async function approvePairing(
  tx: Tx,
  code: string,
  by: string,
  role: Role = DEFAULT_ROLE,
): Promise<ApprovalAnswer> {
  const wrong = await countAudit(tx, by, 'access.wrong_code', tx.now - WRONG_CODE_MS);
  if (wrong >= MAX_WRONG_CODES) return { outcome: 'too_many_wrong_codes', retryAfterMs: WRONG_CODE_MS };
  const [pairing] = await pairingByHash(tx, sha256(normalCode(code)));
  if (!pairing || pairing.expires_at <= tx.now) {
    await audit(tx, { actor: by, action: 'access.wrong_code', target: 'pairing' });
    return { outcome: 'unknown_code' };
  }
  const { channel, account, user_id: user, name } = pairing;
  const [row] = await upsertPerson(tx, { id: await tx.ids(1), channel, account, user, name, role, by });
  await deletePairing(tx, { channel, account, user });
  const target = personText({ channel: channel as ChannelName, account, userId: user });
  await audit(tx, { actor: by, action: 'access.approved', target, data: { role } });
  return { outcome: 'approved', person: personOf(row!), route: JSON.parse(pairing.route) as Route };
}

/** False where the list is full of people who have only just asked. */
async function makeRoom(tx: Tx, { channel, account }: { channel: ChannelName; account: string }): Promise<boolean> {
  if ((await countPairings(tx, channel, account)) < MAX_PENDING) return true;
  const [oldest] = await oldestPairing(tx, channel, account);
  if (!oldest || tx.now - oldest.created_at < SURE_MS) return false;
  await deletePairing(tx, { channel, account, user: oldest.user_id });
  const target = personText({ channel, account, userId: oldest.user_id });
  await audit(tx, { actor: 'gateway', action: 'access.pairing_dropped', target });
  return true;
}

/** As people type codes: small letters, blanks and dashes, look-alikes. */
function normalCode(text: string): string {
  return text.toUpperCase().replace(/[\s-]/g, '').replaceAll('O', '0').replace(/[IL]/g, '1');
}
