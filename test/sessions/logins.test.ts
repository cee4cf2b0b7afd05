import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { manualClock } from '../../src/clock.ts';
import { getPerson, revoke, setRole } from '../../src/sessions/access.ts';
import {
  admit,
  COOKIE_MS,
  createLoginLink,
  endLogin,
  isLinkOpen,
  LINK_MS,
  type LoginAnswer,
  loginOf,
  redeemLoginLink,
  webchatPerson,
} from '../../src/sessions/logins.ts';
import { openSqlite } from '../../src/store/sqlite.ts';
import type { Store } from '../../src/store/store.ts';

const clock = manualClock(0);
let folder: string;
let store: Store;
beforeEach(async () => {
  clock.set(1_800_000_000_000);
  folder = await mkdtemp(join(tmpdir(), 'errand-logins-'));
  store = openSqlite({ path: join(folder, 'errand.db'), clock });
});
afterEach(async () => {
  await store.close();
  await rm(folder, { recursive: true, force: true });
});

const rows = () => store.fetch(store.dialect.build.selectFrom('login').selectAll().orderBy('created_at'));
const auditLog = () => store.fetch(store.dialect.build.selectFrom('audit').selectAll().orderBy('id'));
const who = (cookie: string) => loginOf(store, cookie, clock.now());
const revoked = (userId: string) => store.transact('revoke', (tx) => revoke(tx, webchatPerson(userId), 'cli'));

async function token(userId: string, name?: string): Promise<string> {
  const { path } = await createLoginLink(store, { userId, ...(name === undefined ? {} : { name }) });
  expect(path).toMatch(/^\/chat\/login\?token=[\w-]{40,}$/);
  return path.split('=')[1]!;
}

async function cookie(userId: string, name?: string): Promise<string> {
  return signedIn(await redeemLoginLink(store, await token(userId, name)));
}

function signedIn(answer: LoginAnswer): string {
  if (answer.outcome !== 'signed_in') throw new Error(`not signed in but ${answer.outcome}`);
  return answer.cookie;
}

it('a link signs in once, also when it is pressed twice at the same time', async () => {
  const link = await token('ann', 'Ann');
  const answers = await Promise.all([
    redeemLoginLink(store, link),
    redeemLoginLink(store, link),
    redeemLoginLink(store, link),
  ]);
  expect(answers.map((answer) => answer.outcome).sort()).toEqual(['closed', 'closed', 'signed_in']);
  expect(await redeemLoginLink(store, link)).toEqual({ outcome: 'closed' });
});

it('asking whether a link is open does not use it up', async () => {
  const link = await token('ann');
  for (let n = 0; n < 3; n += 1) expect(await isLinkOpen(store, link, clock.now())).toBe(true);
  signedIn(await redeemLoginLink(store, link));
  expect(await isLinkOpen(store, link, clock.now())).toBe(false);
  expect(await isLinkOpen(store, 'something else', clock.now())).toBe(false);
});

it('a link is over after ten minutes, a cookie after thirty days', async () => {
  const [early, late] = [await token('ann'), await token('ann')];
  clock.advance(LINK_MS - 1);
  const browser = signedIn(await redeemLoginLink(store, early));
  clock.advance(1);
  expect(await isLinkOpen(store, late, clock.now())).toBe(false);
  expect(await redeemLoginLink(store, late)).toEqual({ outcome: 'closed' });
  clock.advance(COOKIE_MS - 2);
  expect(await who(browser)).toMatchObject({ userId: 'ann' });
  clock.advance(1);
  expect(await who(browser)).toBeUndefined();
  await token('bob');
  expect(await rows()).toHaveLength(1);
});

it('neither secret is stored, and a cookie is no link nor a link a cookie', async () => {
  const link = await token('ann');
  const browser = await cookie('bob');
  const stored = JSON.stringify([await rows(), await auditLog()]);
  expect(stored).not.toContain(link);
  expect(stored).not.toContain(browser);
  expect(await who(link)).toBeUndefined();
  expect(await redeemLoginLink(store, browser)).toEqual({ outcome: 'closed' });
});

it('a person is paired by their first login as an operator, and it is written down', async () => {
  const link = await token('ann', 'Ann Lee');
  expect(await getPerson(store, webchatPerson('ann'))).toBeUndefined();
  const browser = signedIn(await redeemLoginLink(store, link));
  expect(await who(browser)).toEqual({ userId: 'ann', name: 'Ann Lee', role: 'operator' });
  const person = await getPerson(store, webchatPerson('ann'));
  expect(person).toMatchObject({ channel: 'webchat', role: 'operator', pairedBy: 'login link', pairedAt: clock.now() });
  expect(await auditLog()).toMatchObject([
    { actor: 'login link', action: 'access.approved', target: 'webchat/default/ann' },
  ]);
});

it('a role that was given before stays, and a later one holds at once', async () => {
  await store.transact('admit', (tx) => admit(tx, { userId: 'ann', by: 'cli' }));
  await store.transact('role', (tx) => setRole(tx, webchatPerson('ann'), 'admin', 'cli'));
  const browser = await cookie('ann');
  expect(await who(browser)).toMatchObject({ role: 'admin' });
  await store.transact('role', (tx) => setRole(tx, webchatPerson('ann'), 'viewer', 'cli'));
  expect(await who(browser)).toMatchObject({ role: 'viewer' });
});

it('a revoked person is out at once and no link lets them in again, only a role does', async () => {
  const browser = await cookie('ann');
  const open = await token('ann');
  await revoked('ann');
  expect(await who(browser)).toBeUndefined();
  expect(await redeemLoginLink(store, open)).toEqual({ outcome: 'revoked' });
  await expect(createLoginLink(store, { userId: 'ann' })).rejects.toMatchObject({ code: 'conflict', field: 'user' });
  await store.transact('role', (tx) => setRole(tx, webchatPerson('ann'), 'operator', 'cli'));
  expect(await who(await cookie('ann'))).toMatchObject({ userId: 'ann' });
});

it('signing out ends this browser only', async () => {
  const [phone, desk] = [await cookie('ann'), await cookie('ann')];
  await endLogin(store, phone);
  await endLogin(store, phone);
  expect(await who(phone)).toBeUndefined();
  expect(await who(desk)).toMatchObject({ userId: 'ann' });
});
