import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Route } from '../../src/channels/channel.ts';
import { manualClock } from '../../src/clock.ts';
import { sha256 } from '../../src/ids.ts';
import {
  accessIn,
  allowGroup,
  denyGroup,
  getPersonById,
  listAccess,
  nobodyYet,
  type PersonKey,
  revoke,
  setRole,
  whoIs,
} from '../../src/sessions/access.ts';
import { approvePairing, MAX_PENDING, type PairingAnswer, requestPairing } from '../../src/sessions/pairing.ts';
import { isRole, may, RIGHTS, ROLES, type Role } from '../../src/sessions/rights.ts';
import { openSqlite } from '../../src/store/sqlite.ts';
import type { Store } from '../../src/store/store.ts';

const MINUTE = 60_000;
const clock = manualClock(0);
let folder: string;
let store: Store;
beforeEach(async () => {
  clock.set(1_800_000_000_000);
  folder = await mkdtemp(join(tmpdir(), 'errand-access-'));
  store = openSqlite({ path: join(folder, 'errand.db'), clock });
});
afterEach(async () => {
  await store.close();
  await rm(folder, { recursive: true, force: true });
});

const key = (userId: string): PersonKey => ({ channel: 'telegram', account: 'default', userId });
const route = (chat: string): Route => ({ channel: 'telegram', account: 'default', chat, chatKind: 'direct' });
const ask = (userId: string, more: Partial<PersonKey> = {}): Promise<PairingAnswer> =>
  store.transact('ask', (tx) =>
    requestPairing(tx, { ...key(userId), ...more, name: `name ${userId}`, route: route(userId) }),
  );
const approve = (code: string, by = 'cli', role?: Role) =>
  store.transact('approve', (tx) => approvePairing(tx, code, by, role));
const auditLog = () => store.fetch(store.dialect.build.selectFrom('audit').selectAll().orderBy('id'));

async function codeFor(userId: string): Promise<string> {
  const answer = await ask(userId);
  if (answer.outcome !== 'code') throw new Error(`no code but ${answer.outcome}`);
  return answer.code;
}

async function letIn(userId: string, role: Role): Promise<void> {
  expect(await approve(await codeFor(userId), 'cli', role)).toMatchObject({ outcome: 'approved' });
}

describe('rights', () => {
  it('grow from role to role, and are none without one', () => {
    const table = ROLES.map((role) => RIGHTS.filter((right) => may(role, right)));
    expect(table).toEqual([
      ['talk'],
      ['talk', 'run'],
      ['talk', 'run', 'approve'],
      ['talk', 'run', 'approve', 'administer'],
    ]);
    expect(RIGHTS.some((right) => may(null, right))).toBe(false);
    expect([isRole('admin'), isRole('root'), isRole('__proto__')]).toEqual([true, false, false]);
  });
});

describe('pairing', () => {
  it('a stranger gets a code; approved, an operator comes of it', async () => {
    expect(await whoIs(store, key('42'))).toEqual({ role: null, revoked: false });
    expect(await nobodyYet(store)).toBe(true);
    const code = await codeFor('42');
    expect(code).toMatch(/^[0-9A-HJKMNP-TV-Z]{8}$/);
    expect(await whoIs(store, key('42'))).toEqual({ role: null, revoked: false });
    const answer = await approve(
      ` ${code.slice(0, 4).toLowerCase()}-${code.slice(4).replaceAll('1', 'l').replaceAll('0', 'o')}`,
    );
    expect(answer).toMatchObject({
      outcome: 'approved',
      person: { userId: '42', name: 'name 42', role: 'operator', pairedBy: 'cli' },
      route: route('42'),
    });
    expect(await whoIs(store, key('42'))).toEqual({ role: 'operator', revoked: false });
    expect(await nobodyYet(store)).toBe(false);
    expect(await auditLog()).toMatchObject([
      { actor: 'cli', action: 'access.approved', target: 'telegram/default/42', data: '{"role":"operator"}' },
    ]);
  });

  it('only the hash of a code is stored', async () => {
    const code = await codeFor('42');
    const rows = await store.fetch(store.dialect.build.selectFrom('pairing').selectAll());
    expect(rows.map((row) => row.code_hash)).toEqual([sha256(code)]);
    expect(JSON.stringify(rows)).not.toContain(code);
    await approve(code);
    expect(JSON.stringify([await auditLog(), await listAccess(store, clock.now())])).not.toContain(code);
  });

  it('a code works once', async () => {
    const code = await codeFor('42');
    await approve(code);
    expect(await approve(code)).toEqual({ outcome: 'unknown_code' });
  });

  it('asking again within a minute sends nothing new; later the new code replaces the old one', async () => {
    const first = await codeFor('42');
    clock.advance(MINUTE - 1);
    expect(await ask('42')).toEqual({
      outcome: 'already_sent',
      code: undefined,
      alreadySentAt: clock.now() - MINUTE + 1,
    });
    clock.advance(1);
    const second = await codeFor('42');
    expect(await approve(first)).toEqual({ outcome: 'unknown_code' });
    expect(await approve(second)).toMatchObject({ outcome: 'approved' });
  });

  it('a code is over after an hour', async () => {
    const code = await codeFor('42');
    clock.advance(60 * MINUTE);
    expect(await approve(code)).toEqual({ outcome: 'unknown_code' });
    expect((await listAccess(store, clock.now())).pending).toEqual([]);
    const next = await codeFor('42');
    clock.advance(60 * MINUTE - 1);
    expect(await approve(next)).toMatchObject({ outcome: 'approved' });
  });

  it('strangers cannot fill the list: later ones wait, other accounts and those who wait already do not', async () => {
    for (let n = 0; n < MAX_PENDING; n += 1) await codeFor(`u${n}`);
    expect(await ask('late')).toEqual({ outcome: 'full', code: undefined });
    expect(await ask('late', { account: 'second' })).toMatchObject({ outcome: 'code' });
    clock.advance(MINUTE);
    expect(await ask('u7')).toMatchObject({ outcome: 'code' });
    expect((await listAccess(store, clock.now())).pending).toHaveLength(MAX_PENDING + 1);
    clock.advance(60 * MINUTE - MINUTE);
    expect(await ask('late')).toMatchObject({ outcome: 'code' });
  });

  it('a known person gets no code', async () => {
    await letIn('42', 'viewer');
    expect(await ask('42')).toEqual({ outcome: 'paired', code: undefined });
  });

  it('five wrong codes in ten minutes stop one approver, not others, and not for ever', async () => {
    const code = await codeFor('42');
    for (let n = 0; n < 5; n += 1) expect(await approve('WRONG', 'person:a')).toEqual({ outcome: 'unknown_code' });
    expect(await approve(code, 'person:a')).toMatchObject({ outcome: 'too_many_wrong_codes' });
    expect(await whoIs(store, key('42'))).toMatchObject({ role: null });
    clock.advance(10 * MINUTE);
    expect(await approve('WRONG', 'person:b')).toEqual({ outcome: 'unknown_code' });
    expect(await approve(code, 'person:a')).toMatchObject({ outcome: 'approved' });
  });

  it('two requests and two approvals at the same moment make one person', async () => {
    const answers = await Promise.all([ask('42'), ask('42')]);
    expect(answers.map((answer) => answer.outcome)).toEqual(['code', 'already_sent']);
    const code = answers[0]!.code!;
    const approvals = await Promise.all([approve(code), approve(code)]);
    expect(approvals.map((answer) => answer.outcome)).toEqual(['approved', 'unknown_code']);
    expect((await listAccess(store, clock.now())).people).toHaveLength(1);
  });
});

describe('people and groups', () => {
  it('a revoked person has no rights, cannot pair anew, and comes back by a role', async () => {
    await letIn('42', 'admin');
    const off = () => store.transact('revoke', (tx) => revoke(tx, key('42'), 'cli'));
    expect([await off(), await off()]).toEqual(['revoked', 'already_revoked']);
    expect(await store.transact('revoke', (tx) => revoke(tx, key('nobody'), 'cli'))).toBe('not_found');
    expect(await whoIs(store, key('42'))).toEqual({ role: null, revoked: true });
    expect(await ask('42')).toEqual({ outcome: 'revoked', code: undefined });
    expect(await store.transact('role', (tx) => setRole(tx, key('42'), 'viewer', 'cli'))).toMatchObject({
      role: 'viewer',
      revokedAt: null,
    });
    expect(await whoIs(store, key('42'))).toEqual({ role: 'viewer', revoked: false });
    expect((await auditLog()).map((row) => row.action)).toEqual(['access.approved', 'access.revoked', 'access.role']);
  });

  it('a role can be given to known people only, and people are found by id', async () => {
    await letIn('42', 'viewer');
    expect(await store.transact('role', (tx) => setRole(tx, key('nobody'), 'admin', 'cli'))).toBeUndefined();
    const person = (await store.transact('role', (tx) => setRole(tx, key('42'), 'approver', 'cli')))!;
    expect(await getPersonById(store, person.id)).toEqual(person);
    expect(await getPersonById(store, 999_999)).toBeUndefined();
    expect((await auditLog()).at(-1)).toMatchObject({
      action: 'access.role',
      data: '{"from":"viewer","to":"approver"}',
    });
  });

  it('a role holds on its channel account only, and nobody is nobody', async () => {
    await letIn('42', 'admin');
    expect(await whoIs(store, { ...key('42'), account: 'second' })).toMatchObject({ role: null });
    expect(await whoIs(store, { ...key('42'), channel: 'wecom' })).toMatchObject({ role: null });
    expect(await whoIs(store, { channel: 'telegram', account: 'default', userId: undefined })).toMatchObject({
      role: null,
    });
  });

  it('in groups both the chat and the person must be allowed', async () => {
    await letIn('42', 'operator');
    const group: Route = { ...route('-100'), chatKind: 'group' };
    const mayRun = async (user: string | undefined, where: Route) => (await accessIn(store, where, user)).may('run');
    expect([await mayRun('42', route('42')), await mayRun('42', group)]).toEqual([true, false]);
    const change = (verb: typeof allowGroup) =>
      store.transact('group', (tx) => verb(tx, { channel: 'telegram', account: 'default', chat: '-100' }, 'cli'));
    expect([await change(allowGroup), await change(allowGroup)]).toEqual([true, false]);
    expect([await mayRun('42', group), await mayRun('43', group), await mayRun(undefined, group)]).toEqual([
      true,
      false,
      false,
    ]);
    expect((await listAccess(store, clock.now())).groups).toMatchObject([{ chat: '-100', allowedBy: 'cli' }]);
    expect([await change(denyGroup), await change(denyGroup)]).toEqual([true, false]);
    expect(await mayRun('42', group)).toBe(false);
    expect((await auditLog()).map((row) => row.action).slice(1)).toEqual(['group.allowed', 'group.denied']);
  });
});
