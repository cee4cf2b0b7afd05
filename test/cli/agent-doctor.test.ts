import { chmod, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { currentBootId } from '../../src/agents/worker/process-group.ts';
import { recordLine } from '../../src/agents/worker/records.ts';
import { spoolFigures } from '../../src/agents/worker/spool-figures.ts';
import type { Finding } from '../../src/cli/agent-doctor.ts';
import { run } from '../../src/cli/program.ts';
import { TestGateway } from '../support/gateway.ts';
import { connectProxy, httpsDoor, makeCertificates } from '../support/tls.ts';
import { until } from '../support/until.ts';
import { startErrand } from './errand.ts';

let folder: string;
let gateway: TestGateway;
let token: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-doctor-'));
  gateway = await TestGateway.start();
  token = await gateway.gateway.rooms.tokens.issue({ agentId: 'pc-1', pools: ['hotel'], labels: {} });
});
afterAll(async () => {
  await gateway?.stop();
  await rm(folder, { recursive: true, force: true });
});

type Settings = Record<string, string>;

async function settingsFile(more: Settings = {}): Promise<string> {
  const dir = await mkdtemp(join(folder, 'agent-'));
  const values = {
    AGENT_GATEWAY_URL: gateway.url,
    AGENT_TOKEN: token,
    AGENT_ID: 'pc-1',
    AGENT_SPOOL_DIR: join(dir, 'spool'),
    ...more,
  };
  const path = join(dir, 'agent.env');
  const text = Object.entries(values).map(([name, value]) => `${name}=${value}\n`);
  await writeFile(path, text.join(''), { mode: 0o600 });
  return path;
}

async function doctor(path: string, ...more: string[]): Promise<{ code: number; out: string; err: string }> {
  let out = '';
  let err = '';
  const code = await run(['agent', 'doctor', '--settings', path, ...more], {
    env: { PATH: process.env.PATH },
    cwd: folder,
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
  });
  return { code, out, err };
}

/** Exit code and findings with these settings. */
async function examine(more: Settings = {}): Promise<{ code: number; found: Finding[] }> {
  const { code, out } = await doctor(await settingsFile(more), '--json');
  return { code, found: (JSON.parse(out) as { checks: Finding[] }).checks };
}
const of = (found: readonly Finding[], check: string) => found.filter((finding) => finding.check === check);
const trouble = (found: readonly Finding[]) =>
  found.filter(({ status }) => status !== 'ok').map(({ check, status, detail }) => `${status} ${check}: ${detail}`);

describe('a machine that is well', () => {
  test('gets one line for each check, exit 0, and is left as it was', async () => {
    const path = await settingsFile();
    const { code, out, err } = await doctor(path);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    const lines = out.trimEnd().split('\n');
    expect(lines.map((line) => line.split(/\s+/, 2))).toEqual(
      [
        'file',
        'settings',
        'dns',
        'tcp',
        'token',
        'clock',
        'spool',
        'disk',
        'reports',
        'work',
        'programs',
        'process',
      ].map((check) => [expect.stringMatching(/^(ok|warn)$/), check]),
    );
    expect(out).toContain('accepted: agent pc-1, pools hotel');
    expect(out).not.toContain(token);
    expect(await readdir(join(path, '..'))).toEqual(['agent.env']);
  });

  test('is told the process of the agent that runs on it, and that it may be looked at meanwhile', async () => {
    const path = await settingsFile();
    const agent = await startErrand(['agent', '--settings', path], { cwd: folder });
    const lineOf = async () => /process .*/.exec((await doctor(path)).out)?.[0] ?? '';
    await until(() => agent.seen().includes('works for'), 'the agent to run');
    expect(await lineOf()).toContain(`runs as process ${agent.child.pid}`);
    agent.child.kill('SIGTERM');
    expect((await agent.ended).code).toBe(0);
    expect(await lineOf()).toContain('no agent runs');
  });
});

describe('settings', () => {
  test('everything that is wrong is told, and nothing else is tried', async () => {
    const { code, found } = await examine({ AGENT_CONCURRENCY: '0', AGENT_TOKNE: 'x' });
    expect(code).toBe(1);
    expect(trouble(found)).toEqual([
      expect.stringContaining('fail settings: AGENT_TOKNE is not a setting; did you mean AGENT_TOKEN?'),
      expect.stringContaining('fail settings: AGENT_CONCURRENCY must be between'),
    ]);
    expect(found.map(({ check }) => check)).toEqual(['file', 'settings', 'settings']);
  });

  test('a file that others can read is warned of; one that is not there is exit 2', async () => {
    const path = await settingsFile();
    await chmod(path, 0o644);
    const { code, out } = await doctor(path);
    expect([code, out]).toEqual([0, expect.stringMatching(/^warn {2}file .*mode 0644.*: chmod 600 /)]);
    expect((await doctor(join(folder, 'nowhere.env'))).code).toBe(2);
  });
});

describe('the way to the gateway', () => {
  test.each([
    ['a name that nobody knows', { AGENT_GATEWAY_URL: 'https://no-such-host.invalid' }, 'dns', /not found \(E/],
    ['a port where nobody listens', { AGENT_GATEWAY_URL: 'http://127.0.0.1:9' }, 'tcp', /ECONNREFUSED/],
    ['a proxy where nobody listens', { AGENT_PROXY: 'http://127.0.0.1:9' }, 'tcp', /the proxy 127\.0\.0\.1:9 \(ECONN/],
  ])('%s ends it there', async (_what, more, check, detail) => {
    const { code, found } = await examine(more);
    expect([code, of(found, check)]).toEqual([
      1,
      [expect.objectContaining({ status: 'fail', advice: expect.any(String) })],
    ]);
    expect(of(found, check)[0]!.detail).toMatch(detail);
    expect(of(found, 'token')).toEqual([]);
    // The rest of the machine is looked at all the same.
    expect(of(found, 'spool')).toHaveLength(1);
  });

  test('TLS: with the CA it is fine, without it the line says what to set; one that ends soon is warned of', async () => {
    const certificates = await makeCertificates(await mkdtemp(join(folder, 'tls-')), { days: 5 });
    const door = await httpsDoor(gateway.url, certificates);
    const withCa = await examine({ AGENT_GATEWAY_URL: door.url, AGENT_CA_FILE: certificates.caFile });
    expect(withCa.code).toBe(0);
    expect(of(withCa.found, 'tls')).toEqual([expect.objectContaining({ status: 'warn', advice: 'have it renewed' })]);
    expect(of(withCa.found, 'token')[0]!.status).toBe('ok');
    const without = await examine({ AGENT_GATEWAY_URL: door.url });
    expect([without.code, of(without.found, 'tls')[0]]).toEqual([
      1,
      expect.objectContaining({ status: 'fail', detail: expect.stringContaining('AGENT_CA_FILE') }),
    ]);
    await door.close();
  });

  test('through a proxy, with its password shown nowhere', async () => {
    const proxy = await connectProxy({ user: 'agent', password: 'proxy-password' });
    const { code, found } = await examine({ AGENT_PROXY: proxy.url });
    expect([code, of(found, 'token')[0]!.status]).toEqual([0, 'ok']);
    const refused = await examine({ AGENT_PROXY: proxy.url.replace('proxy-password', 'wrong-password') });
    expect([refused.code, of(refused.found, 'gateway')[0]]).toEqual([
      1,
      expect.objectContaining({ status: 'fail', detail: expect.stringContaining('407'), advice: expect.any(String) }),
    ]);
    expect(JSON.stringify([found, refused.found])).not.toMatch(/proxy-password|wrong-password/);
    await proxy.close();
  });

  test('a token that is wrong, revoked, or that of another agent fails', async () => {
    const wrong = await examine({ AGENT_TOKEN: 'agt_wrong' });
    expect([wrong.code, of(wrong.found, 'token')[0]]).toEqual([
      1,
      expect.objectContaining({ status: 'fail', advice: expect.stringContaining('join again') }),
    ]);
    const other = await examine({ AGENT_ID: 'pc-2' });
    expect([other.code, of(other.found, 'token')[0]!.detail]).toEqual([
      1,
      'the token is that of agent pc-1, but AGENT_ID is pc-2',
    ]);
  });

  test('another program in the place of the gateway is recognised', async () => {
    const server = createServer((_request, response) => response.end('{"hello":1}'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { code, found } = await examine({
      AGENT_GATEWAY_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    });
    server.close();
    expect([code, of(found, 'gateway')[0]!.detail]).toEqual([1, 'what answers is not a gateway']);
  });

  test.each([
    ['ahead of', -3_600_000],
    ['behind', 3_600_000],
  ])('a clock that is %s the gateway is warned of', async (word, offMs) => {
    const instance = { host: 'a-copy-of-this-machine', online: true, lastSeenAt: 1 };
    const server = createServer((_request, response) => {
      const who = { agentId: 'pc-1', pools: ['p'], labels: {}, serverTime: Date.now() + offMs, instance };
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(who));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { code, found } = await examine({
      AGENT_GATEWAY_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    });
    server.close();
    expect(code).toBe(0);
    expect(of(found, 'clock')[0]).toMatchObject({ status: 'warn', detail: `3600 s ${word} the gateway's` });
    // A06: a copy of this machine is seen before it does harm.
    expect(of(found, 'instance')[0]).toMatchObject({
      status: 'warn',
      detail: 'agent pc-1 is online on another machine, a-copy-of-this-machine',
    });
    expect(hostname()).not.toBe('a-copy-of-this-machine');
  });
});

describe('the machine', () => {
  test('folders that cannot be written fail', async () => {
    const file = join(folder, 'a-file');
    await writeFile(file, '');
    const { code, found } = await examine({ AGENT_SPOOL_DIR: join(file, 'spool') });
    expect(code).toBe(1);
    expect(of(found, 'spool')[0]).toMatchObject({ status: 'fail', advice: expect.stringContaining('AGENT_SPOOL_DIR') });
    expect(of(found, 'work')[0]).toMatchObject({ status: 'fail', advice: expect.stringContaining('AGENT_WORK_DIR') });
  });

  test('reports that wait are counted, those that were put aside are warned of', async () => {
    const spool = await mkdtemp(join(folder, 'spool-'));
    const report = (runId: string, seq: number) => ({ runId, seq, leaseToken: 'l', type: 'succeeded', summary: '' });
    await writeFile(
      join(spool, 'reports.log'),
      [
        recordLine(JSON.stringify({ reports: [report('aaaa', 1), report('bbbb', 1), report('cccc', 2)] })),
        recordLine(JSON.stringify({ settled: ['bbbb:1'] })),
        'torn',
      ].join(''),
    );
    await mkdir(join(spool, 'dead'));
    await writeFile(join(spool, 'dead', 'dddd-3.json'), '{}');
    const { code, found } = await examine({ AGENT_SPOOL_DIR: spool });
    expect(code).toBe(0);
    expect(of(found, 'reports').map(({ status, detail }) => `${status} ${detail}`)).toEqual([
      expect.stringMatching(/^ok 2 waiting for the gateway/),
      expect.stringMatching(/^warn 1 put aside/),
    ]);
    expect(await spoolFigures(join(folder, 'not-there'))).toEqual({ waiting: 0, dead: 0, bytes: 0 });
  });

  test('programs that the owner allows must be there', async () => {
    const { code, found } = await examine({ AGENT_COMMANDS: `node,${process.execPath},no-such-program` });
    expect([code, of(found, 'programs')[0]!.detail]).toEqual([1, 'no-such-program: not found as a program']);
    expect((await examine({ AGENT_COMMANDS: `node,${process.execPath}` })).code).toBe(0);
  });

  test('a claim that a dead process or a copied folder left binds nobody', async () => {
    const spool = await mkdtemp(join(folder, 'spool-'));
    const claim = { pid: 999_999, bootId: await currentBootId(), startedAt: '1', path: spool };
    await writeFile(join(spool, 'owner.json'), JSON.stringify(claim));
    const { found } = await examine({ AGENT_SPOOL_DIR: spool });
    expect(of(found, 'process')[0]!.detail).toBe('no agent runs on this spool folder');
  });
});
