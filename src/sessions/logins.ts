import { AppError } from '../errors.ts';
import { randomToken, sha256 } from '../ids.ts';
import type { Store } from '../store/store.ts';
import type { Reader, Tx } from '../store/tx.ts';
import { getPerson, type Person, type PersonKey, personOf, personText } from './access.ts';
import { audit } from './audit.ts';
import { deleteExpiredLogins, insertLogin, loginByHash, takeLogin } from './login-queries.ts';
import { deletePairing, upsertPerson } from './queries.ts';
import type { Role } from './rights.ts';

/** How long a login link is good for. */
export const LINK_MS = 600_000;
/** How long a browser stays signed in. */
export const COOKIE_MS = 30 * 86_400_000;

/** The person of the web chat with this user id. */
export function webchatPerson(userId: string): PersonKey {
  return { channel: 'webchat', account: 'default', userId };
}

export interface LoginLink {
  /** To be added to the public URL; holds the secret. */
  readonly path: string;
  /** Epoch milliseconds. */
  readonly expiresAt: number;
}

/**
 * A link that signs one browser in as this user of the web chat, once. Only for the administrator: whoever opens it is paired as an
 * operator. Of its secret the store keeps the sha256.
 * @throws AppError conflict for a person whose access was revoked: a role lets them in again, a link does not
 */
export function createLoginLink(store: Store, { userId, name }: { userId: string; name?: string }): Promise<LoginLink> {
  return store.transact('login.link', async (tx) => {
    const person = await getPerson(tx, webchatPerson(userId));
    if (person && person.revokedAt !== null) {
      throw new AppError('conflict', `access of ${userId} was revoked; give a role first`, { field: 'user' });
    }
    await deleteExpiredLogins(tx);
    const token = randomToken(32);
    const expiresAt = tx.now + LINK_MS;
    await insertLogin(tx, {
      hash: sha256(token),
      kind: 'link',
      userId,
      name: name ?? person?.name ?? userId,
      expiresAt,
    });
    return { path: `/chat/login?token=${token}`, expiresAt };
  });
}

/** Whether this link could be used now; asking does not use it up. */
export async function isLinkOpen(reader: Reader, token: string, now: number): Promise<boolean> {
  const [row] = await reader.all(loginByHash, { hash: sha256(token), kind: 'link' });
  return row !== undefined && row.expires_at > now;
}

export type LoginAnswer =
  /** `cookie` is the browser's secret, stored nowhere but as a hash. */
  | { readonly outcome: 'signed_in'; readonly cookie: string; readonly expiresAt: number }
  /** Mistyped, used before, or over. */
  | { readonly outcome: 'closed' }
  /** The person's access was revoked after the link was made. The link is used up all the same. */
  | { readonly outcome: 'revoked' };

/** Uses a link up: the person is paired by it where they were not, and the browser gets a cookie. */
export function redeemLoginLink(store: Store, token: string): Promise<LoginAnswer> {
  return store.transact<LoginAnswer>('login.redeem', async (tx) => {
    const [link] = await takeLogin(tx, sha256(token), 'link');
    if (!link || link.expires_at <= tx.now) return { outcome: 'closed' };
    const { user_id: userId, name } = link;
    const person = await admit(tx, { userId, name, by: 'login link' });
    if (person.revokedAt !== null) return { outcome: 'revoked' };
    const cookie = randomToken(32);
    const expiresAt = tx.now + COOKIE_MS;
    await insertLogin(tx, { hash: sha256(cookie), kind: 'cookie', userId, name, expiresAt });
    return { outcome: 'signed_in', cookie, expiresAt };
  });
}

export interface Login {
  readonly userId: string;
  readonly name: string;
  readonly role: Role;
}

/** Who this browser is signed in as; undefined for a cookie that is unknown or over, and for a person without access. */
export async function loginOf(reader: Reader, cookie: string, now: number): Promise<Login | undefined> {
  const [row] = await reader.all(loginByHash, { hash: sha256(cookie), kind: 'cookie' });
  if (!row || row.expires_at <= now) return undefined;
  const person = await getPerson(reader, webchatPerson(row.user_id));
  if (!person || person.revokedAt !== null) return undefined;
  return { userId: row.user_id, name: row.name, role: person.role };
}

/** Signs this browser out; an unknown cookie is fine. */
export function endLogin(store: Store, cookie: string): Promise<void> {
  return store.transact('login.end', async (tx) => {
    await takeLogin(tx, sha256(cookie), 'cookie');
  });
}

/**
 * Makes a user of the web chat a paired person, as an operator, on the administrator's word. Somebody who is paired keeps their
 * role; a revoked person stays revoked (look at the answer).
 * @param by who vouches, for example `login link` or `admin token`
 */
export async function admit(tx: Tx, who: { userId: string; name?: string; by: string }): Promise<Person> {
  const key = webchatPerson(who.userId);
  const known = await getPerson(tx, key);
  if (known) return known;
  const user = { channel: key.channel, account: key.account, user: key.userId };
  const role: Role = 'operator';
  const [row] = await upsertPerson(tx, {
    ...user,
    id: await tx.ids(1),
    name: who.name ?? who.userId,
    role,
    by: who.by,
  });
  await deletePairing(tx, user);
  await audit(tx, { actor: who.by, action: 'access.approved', target: personText(key), data: { role } });
  return personOf(row!);
}
