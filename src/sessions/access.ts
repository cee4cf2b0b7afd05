import type { ChannelName, Route } from '../channels/channel.ts';
import type { PersonTable } from '../store/tables.ts';
import type { Reader, Tx } from '../store/tx.ts';
import { audit } from './audit.ts';
import {
  allGroups,
  allPeople,
  changeRole,
  deleteGroup,
  deletePairing,
  type GroupKey,
  groupPolicy,
  pendingPairings,
  personById,
  personByUser,
  revokePerson,
  upsertGroup,
} from './queries.ts';
import { type GroupPolicy, may, type Right, type Role } from './rights.ts';

/** A person on one channel account. The same human on two channels is two of them. */
export interface PersonKey {
  readonly channel: ChannelName;
  readonly account: string;
  readonly userId: string;
}

export interface Person extends PersonKey {
  readonly id: number;
  readonly name: string | null;
  readonly role: Role;
  readonly pairedAt: number;
  readonly pairedBy: string;
  readonly revokedAt: number | null;
}

export interface Identity {
  /** Null: none, and with it no right. */
  readonly role: Role | null;
  readonly revoked: boolean;
}

/** Who somebody is to us. Nobody without an id (anonymous group admins, channel posts) has a role. */
export async function whoIs(
  reader: Reader,
  key: Omit<PersonKey, 'userId'> & { readonly userId: string | undefined },
): Promise<Identity> {
  if (key.userId === undefined) return { role: null, revoked: false };
  const person = await getPerson(reader, { ...key, userId: key.userId });
  if (!person) return { role: null, revoked: false };
  return person.revokedAt === null ? { role: person.role, revoked: false } : { role: null, revoked: true };
}

export interface Access extends Identity {
  /** True for direct chats. */
  readonly chatAllowed: boolean;
  /** Of an allowed group (also one that is `off`); null: a direct chat, or a group nobody has allowed. */
  readonly group: GroupPolicy | null;
  /** In groups both the chat and the person must be allowed. */
  may(right: Right): boolean;
}

/** What a person may do in the chat of this route. */
export async function accessIn(reader: Reader, route: Route, userId: string | undefined): Promise<Access> {
  const { channel, account, chat } = route;
  const identity = await whoIs(reader, { channel, account, userId });
  const group =
    route.chatKind === 'direct'
      ? null
      : ((await reader.all(groupPolicy, { channel, account, chat }))[0]?.policy ?? null);
  const chatAllowed = route.chatKind === 'direct' || (group !== null && group !== 'off');
  return { ...identity, chatAllowed, group, may: (right) => chatAllowed && may(identity.role, right) };
}

export async function getPerson(reader: Reader, key: PersonKey): Promise<Person | undefined> {
  const [row] = await reader.all(personByUser, { channel: key.channel, account: key.account, user: key.userId });
  return row && personOf(row);
}

export async function getPersonById(reader: Reader, id: number): Promise<Person | undefined> {
  const [row] = await personById(reader, id);
  return row && personOf(row);
}

/** True until the first person was ever approved: whoever installs may make that one an admin. */
export async function nobodyYet(reader: Reader): Promise<boolean> {
  return (await allPeople(reader)).length === 0;
}

/** Takes all rights away, also a pending pairing. `by` is the actor of the audit entry. */
export async function revoke(tx: Tx, key: PersonKey, by: string): Promise<'revoked' | 'already_revoked' | 'not_found'> {
  const person = await getPerson(tx, key);
  if (!person) return 'not_found';
  if ((await revokePerson(tx, person.id)) === 0) return 'already_revoked';
  await deletePairing(tx, { channel: key.channel, account: key.account, user: key.userId });
  await audit(tx, { actor: by, action: 'access.revoked', target: personText(key), data: { role: person.role } });
  return 'revoked';
}

/** Gives a known person a role; a revoked one is let in again by it. Undefined when there is no such person. */
export async function setRole(tx: Tx, key: PersonKey, role: Role, by: string): Promise<Person | undefined> {
  const before = await getPerson(tx, key);
  if (!before) return undefined;
  const [row] = await changeRole(tx, before.id, role);
  const from = before.revokedAt === null ? before.role : 'revoked';
  await audit(tx, { actor: by, action: 'access.role', target: personText(key), data: { from, to: role } });
  return personOf(row!);
}

/** Lets allowed people act in this group, as it was set before if it is open already. Answers whether that is a change. */
export async function allowGroup(tx: Tx, group: GroupKey, by: string): Promise<boolean> {
  const [known] = await tx.all(groupPolicy, { ...group });
  return known && known.policy !== 'off' ? false : setGroupPolicy(tx, group, 'mention', by);
}

/** Allows a group where it was not, and says what is acted on in it. Answers whether that is a change. */
export async function setGroupPolicy(tx: Tx, group: GroupKey, policy: GroupPolicy, by: string): Promise<boolean> {
  const [known] = await tx.all(groupPolicy, { ...group });
  if (known?.policy === policy) return false;
  await upsertGroup(tx, group, policy, by);
  const entry = { actor: by, target: groupText(group) };
  if (known) await audit(tx, { ...entry, action: 'group.policy', data: { from: known.policy, to: policy } });
  else await audit(tx, { ...entry, action: 'group.allowed', data: { policy } });
  return true;
}

/** Answers whether that is a change. */
export async function denyGroup(tx: Tx, group: GroupKey, by: string): Promise<boolean> {
  if ((await deleteGroup(tx, group)) === 0) return false;
  await audit(tx, { actor: by, action: 'group.denied', target: groupText(group) });
  return true;
}

interface PendingPairing extends PersonKey {
  readonly id: number;
  readonly name: string | null;
  readonly requestedAt: number;
  readonly expiresAt: number;
}

interface AllowedGroup extends GroupKey {
  readonly policy: GroupPolicy;
  readonly allowedAt: number;
  readonly allowedBy: string;
}

export interface AccessList {
  /** Also revoked ones. */
  readonly people: readonly Person[];
  /** Who asked and waits; codes are nowhere. */
  readonly pending: readonly PendingPairing[];
  readonly groups: readonly AllowedGroup[];
}

/** @param now leaves out pairings that are over */
export async function listAccess(reader: Reader, now: number): Promise<AccessList> {
  const people = (await allPeople(reader)).map(personOf);
  const pending = (await pendingPairings(reader, now)).map((row) => ({
    id: row.id,
    channel: row.channel as ChannelName,
    account: row.account,
    userId: row.user_id,
    name: row.name,
    requestedAt: row.created_at,
    expiresAt: row.expires_at,
  }));
  const groups = (await allGroups(reader)).map(({ channel, account, chat, policy, allowed_at, allowed_by }) => ({
    channel,
    account,
    chat,
    policy: policy as GroupPolicy,
    allowedAt: allowed_at,
    allowedBy: allowed_by,
  }));
  return { people, pending, groups };
}

/** How a person is written in audit entries: `telegram/default/42`. */
export function personText(key: PersonKey): string {
  return `${key.channel}/${key.account}/${key.userId}`;
}

export function personOf(row: PersonTable): Person {
  return {
    id: row.id,
    channel: row.channel as ChannelName,
    account: row.account,
    userId: row.user_id,
    name: row.name,
    role: row.role as Role,
    pairedAt: row.paired_at,
    pairedBy: row.paired_by,
    revokedAt: row.revoked_at,
  };
}

function groupText(group: GroupKey): string {
  return `${group.channel}/${group.account}/${group.chat}`;
}
