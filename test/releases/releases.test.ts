import { createHash } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { HeartbeatRequest } from '../../src/agents/protocol.ts';
import { isProtocolSpoken } from '../../src/agents/protocol.ts';
import { upsertNote } from '../../src/releases/queries.ts';
import { migrate } from '../../src/store/migrate.ts';
import { TestGateway } from '../support/gateway.ts';
import { planOf } from '../support/plans.ts';

let house: TestGateway;
let token: string;
beforeEach(async () => {
  house = await TestGateway.start();
  token = await house.gateway.rooms.tokens.issue({ agentId: 'a1', pools: ['default'], labels: {} });
});
afterEach(() => house.stop());

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const SIGNATURE = `${'A'.repeat(86)}==`;
const folder = () => join(house.folder, 'state', 'releases');

async function publish(version: string, body: string | Buffer, query = '') {
  const response = await fetch(`${house.url}/api/releases/${version}${query}`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${house.gateway.adminToken}`, 'content-type': 'application/octet-stream' },
    body: new Uint8Array(Buffer.from(body)),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

const load = (version: string, headers: Record<string, string> = {}) =>
  fetch(`${house.url}/api/agent/releases/${version}`, { headers: { authorization: `Bearer ${token}`, ...headers } });

async function call(name: string, body: object): Promise<{ status: number; body: Record<string, unknown> }> {
  const response = await fetch(`${house.url}/api/agent/${name}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ agentId: 'a1', instanceId: 'i1', ...body }),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

const REGISTRATION = {
  bootId: 'b',
  version: '1.0.0',
  protocol: 1,
  host: 'h',
  pools: ['default'],
  labels: {},
  runtimes: ['shell'],
  concurrency: 1,
};
const register = (more: object = {}) => call('register', { ...REGISTRATION, ...more });
const beat = (more: Partial<HeartbeatRequest> & Record<string, unknown> = {}) =>
  call('heartbeat', { uptimeMs: 1, load: 0, activeRuns: [], ...more });
const audits = async () =>
  (await house.api<{ entries: { action: string; target: string }[] }>('GET', '/api/audit?limit=100')).body.entries
    .map(({ action, target }) => `${action} ${target}`)
    .filter((text) => /^(release|agent)\./.test(text));

describe('a release', () => {
  it('is stored, named to agents with its digest and signature, and loaded by them', async () => {
    expect((await register()).body).toMatchObject({ latestVersion: expect.any(String), hasUpdate: false });
    expect((await beat()).body).not.toHaveProperty('release');
    const answer = await publish('1.1.0', 'content', `?signature=${encodeURIComponent(SIGNATURE)}`);
    const release = { version: '1.1.0', sha256: sha256('content'), signature: SIGNATURE, bytes: 7 };
    expect(answer).toMatchObject({ status: 200, body: { ...release, current: true, withdrawnAt: null } });
    expect((await beat({ version: '1.0.0' })).body).toMatchObject({ latestVersion: '1.1.0', hasUpdate: true, release });
    expect((await beat({ version: '1.1.0' })).body).toMatchObject({ hasUpdate: false, release });
    expect((await register()).body).toMatchObject({ latestVersion: '1.1.0', hasUpdate: true });
    expect(await (await load('1.1.0')).text()).toBe('content');
    expect(await audits()).toEqual(['release.published 1.1.0']);
  });

  it('is loaded from any byte on, and needs a token of an agent', async () => {
    await publish('1.1.0', 'content');
    const part = await load('1.1.0', { range: 'bytes=3-' });
    expect([part.status, part.headers.get('content-range'), await part.text()]).toEqual([206, 'bytes 3-6/7', 'tent']);
    for (const range of ['bytes=7-', 'bytes=0-', 'bytes=-3', 'bytes=1-2', 'lines=1-'])
      expect((await load('1.1.0', { range })).status).toBe(200);
    expect((await load('1.1.0', { authorization: 'Bearer x' })).status).toBe(401);
    expect((await load('9.9.9')).status).toBe(404);
    expect((await load('..%2F..%2Fadmin-token')).status).toBe(400);
  });

  it('keeps its content for ever: the same again is no mistake, another content is a conflict that changes nothing', async () => {
    await publish('1.1.0', 'content');
    await publish('1.2.0', 'newer');
    expect((await publish('1.2.0', 'other')).status).toBe(409);
    expect(
      (
        await beat()
          .then(() => register())
          .then(() => beat())
      ).body,
    ).toMatchObject({ latestVersion: '1.2.0' });
    // Published again it is the current one again; agents that run something newer do not go back.
    expect((await publish('1.1.0', 'content')).body).toMatchObject({ current: true });
    expect((await beat({ version: '1.2.0' })).body).toMatchObject({ latestVersion: '1.1.0', hasUpdate: false });
  });

  it('that is withdrawn is offered no more and takes no room; its number is used up', async () => {
    await publish('1.1.0', 'content');
    await publish('1.2.0', 'newer');
    expect((await house.api('POST', '/api/releases/1.2.0/withdraw')).status).toBe(200);
    await register();
    expect((await beat()).body).toMatchObject({ release: { version: '1.1.0' } });
    expect((await load('1.2.0')).status).toBe(404);
    expect(await readdir(folder())).toEqual([`${sha256('content')}.package`]);
    expect((await house.api('POST', '/api/releases/1.2.0/withdraw')).status).toBe(404);
    expect((await publish('1.2.0', 'other')).status).toBe(409);
    expect(await audits()).toContain('release.withdrawn 1.2.0');
  });

  it('is not published by anybody else, without content, with a false version or signature', async () => {
    const refused = async (version: string, body: string, query = '') => (await publish(version, body, query)).status;
    expect(await refused('1.1', 'x')).toBe(400);
    expect(await refused('1.1.0%2F..', 'x')).toBe(400);
    expect(await refused('1.1.0', 'x', '?signature=short')).toBe(400);
    expect(await refused('1.1.0', '')).toBe(400);
    const json = await house.api('PUT', '/api/releases/1.1.0', { a: 1 });
    expect(json).toMatchObject({ status: 400, body: { field: 'body' } });
    const stranger = await fetch(`${house.url}/api/releases/1.1.0`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/octet-stream' },
      body: 'x',
    });
    expect(stranger.status).toBe(401);
    expect((await house.api<{ releases: unknown[] }>('GET', '/api/releases')).body.releases).toEqual([]);
    expect((await readdir(folder()).catch(() => [])).filter((name) => !name.startsWith('.'))).toEqual([]);
  });

  it('is there after a restart, and what an interrupted upload left is not', async () => {
    await publish('1.1.0', 'content');
    await writeFile(join(folder(), '.upload-abc'), 'half');
    await house.gateway.stop();
    await house.startGateway();
    expect(await readdir(folder())).toEqual([`${sha256('content')}.package`]);
    await register();
    expect((await beat()).body).toMatchObject({ release: { version: '1.1.0' } });
    expect(await readFile(join(folder(), `${sha256('content')}.package`), 'utf8')).toBe('content');
  });
});

describe('what agents note', () => {
  const upgrade = { version: '1.1.0', state: 'failed' as const, tries: 3, reason: 'it\u001b[31m fell' };
  const shown = async () => (await house.api<{ agents: object[] }>('GET', '/api/agents')).body.agents[0];

  it('is shown, and a failed upgrade is entered into the audit once, however often and by whichever instance it is told', async () => {
    await publish('1.1.0', 'content');
    await register();
    for (let i = 0; i < 3; i += 1)
      await beat({ version: '1.0.0', upgrade, deadReports: { count: 2, reason: 'unknown' } });
    expect(await shown()).toMatchObject({
      deadReports: { count: 2, reason: 'unknown' },
      upgrade: { ...upgrade, reason: 'it [31m fell' },
    });
    await beat({});
    await house.gateway.stop();
    await house.startGateway();
    await register();
    await beat({ version: '1.0.0' });
    expect(await shown()).toMatchObject({ upgrade: { state: 'failed' } });
    await beat({ version: '1.0.0', upgrade });
    expect((await audits()).filter((text) => text === 'agent.upgrade_failed a1')).toHaveLength(1);
    await beat({ version: '1.1.0' });
    expect(await shown()).not.toHaveProperty('upgrade');
  });

  it('costs no write while nothing changes', async () => {
    await register();
    await beat({ version: '1.0.0', deadReports: { count: 1 } });
    const before = house.gateway.rooms.store.stats().units;
    await house.gateway.rooms.releases.notes.hear('a1', { version: '1.0.0', deadReports: { count: 1 } });
    await house.gateway.rooms.releases.notes.hear('a2', { version: '1.0.0' });
    expect(house.gateway.rooms.store.stats().units).toBe(before);
  });

  it('is written by key, without a walk through a table', () => {
    const connection = new Database(':memory:');
    migrate(connection);
    expect(planOf(connection, upsertNote).filter((step) => /SCAN (?!.*VIRTUAL|r\b|json)/.test(step))).toEqual([]);
    connection.close();
  });
});

describe('the protocol between versions', () => {
  it('ignores what it does not know, in every call', async () => {
    const future = { brandNew: { nested: [1] } };
    expect((await register(future)).status).toBe(200);
    expect((await beat(future)).status).toBe(200);
    expect((await call('pull', { maxTasks: 1, waitMs: 0, holding: [], ...future })).status).toBe(200);
    const report = { runId: 'zzzz', leaseToken: 'x', seq: 1, type: 'succeeded', summary: '', ...future };
    expect((await call('report', { reports: [report], ...future })).status).toBe(200);
  });

  it('of a gateway is its own and the one before, for agents that are upgraded after it', () => {
    const spoken = (own: number) =>
      [-1, 0, 1, 2, 3, 4, 2.5, '3', null].filter((version) => isProtocolSpoken(version, own));
    expect(spoken(1)).toEqual([1]);
    expect(spoken(3)).toEqual([2, 3]);
  });

  it.each([0, 2, '1', undefined])('refuses protocol %j and says what to do', async (protocol) => {
    const { status, body } = await register({ protocol });
    expect(status).toBe(400);
    expect(body).toMatchObject({ code: 'invalid_request', field: 'protocol' });
    expect(body.detail).toContain('this gateway speaks agent protocol 1');
  });
});
