import { type Compilable, sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { PersonTable, SessionTable } from '../store/tables.ts';
import type { Reader, Tx } from '../store/tx.ts';
import type { GroupPolicy } from './rights.ts';

const SESSION_COLUMNS = { session_key: 'text', route: 'text', at: 'int' } as const;

/** Each key at most once per call. An older message than the stored one changes nothing. */
export const upsertSessions = hot<{ rows: unknown[][] }>(
  'session.touch',
  (d, p) => sql`
  insert into session (session_key, route, created_at, last_message_at)
  select session_key, route, at, at from ${d.rows(p.rows.param, SESSION_COLUMNS)} as r
  where true
  on conflict (session_key) do update set route = excluded.route, last_message_at = excluded.last_message_at
  where excluded.last_message_at >= session.last_message_at`,
);

export const sessionByKey = hot<{ key: string }, SessionTable>(
  'session.get',
  (_d, p) => sql`select * from session where session_key = ${p.key}`,
);

export function changeSession(
  tx: Tx,
  sessionKey: string,
  choice: { readonly lang?: string | null; readonly notifyPolicy?: string | null },
): Promise<number> {
  const changes: Partial<SessionTable> = {};
  if (choice.lang !== undefined) changes.lang = choice.lang;
  if (choice.notifyPolicy !== undefined) changes.notify_policy = choice.notifyPolicy;
  if (Object.keys(changes).length === 0) return Promise.resolve(0);
  return tx.exec(tx.dialect.build.updateTable('session').set(changes).where('session_key', '=', sessionKey));
}

type PersonKey = { channel: string; account: string; user: string };

export const personByUser = hot<PersonKey, PersonTable>(
  'person.get',
  (_d, p) => sql`select * from person where channel = ${p.channel} and account = ${p.account} and user_id = ${p.user}`,
);

export const groupPolicy = hot<{ channel: string; account: string; chat: string }, { policy: GroupPolicy }>(
  'group.get',
  (_d, p) =>
    sql`select policy from group_access where channel = ${p.channel} and account = ${p.account} and chat = ${p.chat}`,
);

/** Answers `whom` where nobody of that name was told since `before`, and notes that they are told now. */
export const noteTold = hot<
  { channel: string; account: string; whom: string; now: number; before: number },
  { whom: string }
>(
  'refusal.told',
  (_d, p) => sql`
  insert into refusal_notice (channel, account, whom, told_at) values (${p.channel}, ${p.account}, ${p.whom}, ${p.now})
  on conflict (channel, account, whom) do update set told_at = excluded.told_at
  where refusal_notice.told_at <= ${p.before} or refusal_notice.told_at > excluded.told_at
  returning whom`,
);

export const unsayTold = hot<{ channel: string; account: string; whom: string }>(
  'refusal.unsay',
  (_d, p) =>
    sql`delete from refusal_notice where channel = ${p.channel} and account = ${p.account} and whom = ${p.whom}`,
);

export const forgetTold = hot<{ before: number }>(
  'refusal.forget',
  (_d, p) => sql`delete from refusal_notice where told_at <= ${p.before}`,
);

export function personById(reader: Reader, id: number) {
  return reader.fetch(reader.dialect.build.selectFrom('person').selectAll().where('id', '=', id));
}

export function allPeople(reader: Reader) {
  return reader.fetch(reader.dialect.build.selectFrom('person').selectAll().orderBy('id'));
}

export function allGroups(reader: Reader) {
  return reader.fetch(reader.dialect.build.selectFrom('group_access').selectAll().orderBy('allowed_at'));
}

export function pendingPairings(reader: Reader, now: number) {
  const columns = ['id', 'channel', 'account', 'user_id', 'name', 'route', 'created_at', 'expires_at'] as const;
  return reader.fetch(
    reader.dialect.build.selectFrom('pairing').select(columns).where('expires_at', '>', now).orderBy('id'),
  );
}

export function pairingByHash(reader: Reader, codeHash: string) {
  return reader.fetch(reader.dialect.build.selectFrom('pairing').selectAll().where('code_hash', '=', codeHash));
}

export function pairingByUser(reader: Reader, { channel, account, user }: PersonKey) {
  return reader.fetch(
    reader.dialect.build
      .selectFrom('pairing')
      .select(['id', 'created_at', 'expires_at'])
      .where('channel', '=', channel)
      .where('account', '=', account)
      .where('user_id', '=', user),
  );
}

export async function countPairings(reader: Reader, channel: string, account: string): Promise<number> {
  const [row] = await reader.fetch(
    reader.dialect.build
      .selectFrom('pairing')
      .select((eb) => eb.fn.countAll<number>().as('count'))
      .where('channel', '=', channel)
      .where('account', '=', account),
  );
  return Number(row?.count ?? 0);
}

/** Of those who wait on this account, who has waited longest. */
export function oldestPairing(reader: Reader, channel: string, account: string) {
  return reader.fetch(
    reader.dialect.build
      .selectFrom('pairing')
      .select(['user_id', 'created_at'])
      .where('channel', '=', channel)
      .where('account', '=', account)
      .orderBy('created_at')
      .orderBy('id')
      .limit(1),
  );
}

export function deleteExpiredPairings(tx: Tx): Promise<number> {
  return tx.exec(tx.dialect.build.deleteFrom('pairing').where('expires_at', '<=', tx.now));
}

export function deletePairing(tx: Tx, { channel, account, user }: PersonKey): Promise<number> {
  return tx.exec(
    tx.dialect.build
      .deleteFrom('pairing')
      .where('channel', '=', channel)
      .where('account', '=', account)
      .where('user_id', '=', user),
  );
}

export interface NewPairing extends PersonKey {
  id: number;
  name: string | null;
  route: string;
  codeHash: string;
  expiresAt: number;
}

export function insertPairing(tx: Tx, pairing: NewPairing): Promise<number> {
  return tx.exec(
    tx.dialect.build.insertInto('pairing').values({
      id: pairing.id,
      channel: pairing.channel,
      account: pairing.account,
      user_id: pairing.user,
      name: pairing.name,
      route: pairing.route,
      code_hash: pairing.codeHash,
      created_at: tx.now,
      expires_at: pairing.expiresAt,
    }),
  );
}

export interface NewPerson extends PersonKey {
  id: number;
  name: string | null;
  role: string;
  by: string;
}

/** A person who was there before keeps the row and the id. */
export function upsertPerson(tx: Tx, person: NewPerson): Promise<PersonTable[]> {
  const values = { name: person.name, role: person.role, paired_at: tx.now, paired_by: person.by, revoked_at: null };
  return tx.fetch(
    tx.dialect.build
      .insertInto('person')
      .values({ id: person.id, channel: person.channel, account: person.account, user_id: person.user, ...values })
      .onConflict((conflict) => conflict.columns(['channel', 'account', 'user_id']).doUpdateSet(values))
      .returningAll(),
  );
}

/** Also takes back a revocation. */
export function changeRole(tx: Tx, id: number, role: string): Promise<PersonTable[]> {
  return tx.fetch(
    tx.dialect.build.updateTable('person').set({ role, revoked_at: null }).where('id', '=', id).returningAll(),
  );
}

export function revokePerson(tx: Tx, id: number): Promise<number> {
  return tx.exec(
    tx.dialect.build
      .updateTable('person')
      .set({ revoked_at: tx.now })
      .where('id', '=', id)
      .where('revoked_at', 'is', null),
  );
}

export interface GroupKey {
  readonly channel: string;
  readonly account: string;
  readonly chat: string;
}

export function upsertGroup(
  tx: Tx,
  { channel, account, chat }: GroupKey,
  policy: GroupPolicy,
  by: string,
): Promise<number> {
  return tx.exec(
    tx.dialect.build
      .insertInto('group_access')
      .values({ channel, account, chat, policy, allowed_at: tx.now, allowed_by: by })
      .onConflict((conflict) => conflict.columns(['channel', 'account', 'chat']).doUpdateSet({ policy })),
  );
}

export function deleteGroup(tx: Tx, { channel, account, chat }: GroupKey): Promise<number> {
  return tx.exec(
    tx.dialect.build
      .deleteFrom('group_access')
      .where('channel', '=', channel)
      .where('account', '=', account)
      .where('chat', '=', chat),
  );
}

export interface AuditRow {
  id: number;
  actor: string;
  action: string;
  target: string;
  data: string | null;
}

export function insertAudit(tx: Tx, row: AuditRow): Promise<number> {
  return tx.exec(tx.dialect.build.insertInto('audit').values({ ...row, at: tx.now }));
}

/** How often this actor did this lately; looks at the newest entries only, so that a long history costs nothing. */
export async function countAudit(tx: Tx, actor: string, action: string, since: number): Promise<number> {
  const newest = tx.dialect.build
    .selectFrom('audit')
    .select(['at', 'actor', 'action'])
    .orderBy('id', 'desc')
    .limit(200);
  const query: Compilable<{ count: number }> = tx.dialect.build
    .selectFrom(newest.as('newest'))
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('actor', '=', actor)
    .where('action', '=', action)
    .where('at', '>', since);
  return Number((await tx.fetch(query))[0]?.count ?? 0);
}
