import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseEnv, promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { withValues } from '../../src/cli/agent-file.ts';
import { systemdUnit } from '../../src/cli/agent-unit.ts';
import { run } from '../../src/cli/program.ts';
import { TestGateway } from '../support/gateway.ts';
import { httpsDoor, makeCertificates } from '../support/tls.ts';
import { until } from '../support/until.ts';
import { type Ended, startErrand } from './errand.ts';

let folder: string;
let gateway: TestGateway;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-join-'));
  gateway = await TestGateway.start();
});
afterAll(async () => {
  await gateway?.stop();
  await rm(folder, { recursive: true, force: true });
});

/** The command line in this process: what matters here is what it writes, says and answers. */
async function command(args: readonly string[], env: Record<string, string> = {}): Promise<Ended> {
  const ended: Ended = { code: null, out: '', err: '' };
  ended.code = await run(args, {
    env,
    cwd: folder,
    out: (text) => {
      ended.out += text;
    },
    err: (text) => {
      ended.err += text;
    },
  });
  return ended;
}

const call = (...args: string[]) => command(args);
const asAdmin = (...args: string[]) =>
  command(args, { ERRAND_URL: gateway.url, ERRAND_TOKEN: gateway.gateway.adminToken });
const freshDir = () => mkdtemp(join(folder, 'agent-'));
const mode = async (path: string) => ((await stat(path)).mode & 0o777).toString(8);
const envOf = async (dir: string) => parseEnv(await readFile(join(dir, 'agent.env'), 'utf8'));

/** The arguments of the line that `errand agents token` prints for this machine. */
async function line(...args: string[]): Promise<string[]> {
  const { code, out, err } = await asAdmin('agents', 'token', ...args);
  expect({ code, err }).toEqual({ code: 0, err: expect.stringContaining('the line works once') });
  expect(out).toMatch(/^errand agent join http:\/\/127\.0\.0\.1:\d+ join_[\w-]{32}\n$/);
  return out.trim().split(' ').slice(1);
}

const outcome = ({ code, out, err }: Ended) => ({ code, out, err });

describe('errand agents token', () => {
  test('prints one line to paste, and with --permanent the credential as before', async () => {
    const { out } = await asAdmin('agents', 'token', 'perm-1', '--pool', 'p', '--permanent');
    expect(out).toMatch(/^agt_[\w-]{32}\n$/);
    expect((await asAdmin('agents', 'token', '--permanent')).code).toBe(2);
    for (const ttl of ['soon', '0s', '30d']) expect((await asAdmin('agents', 'token', 'x', '--ttl', ttl)).code).toBe(2);
  });

  test('with --json tells when it ends', async () => {
    const { out, err } = await asAdmin('agents', 'token', 'j-1', '--ttl', '10m', '--json');
    const { expiresAt } = JSON.parse(out) as { expiresAt: number };
    expect(expiresAt - Date.now()).toBeLessThanOrEqual(600_000);
    expect(err).toBe('');
  });
});

describe('errand agent join', () => {
  test('the pasted line makes this machine an agent that runs tasks', async () => {
    const dir = join(folder, 'not', 'there', 'yet');
    const joined = await call(...(await line('hotel-12', '--pool', 'hotel-12', '--label', 'city=sz')), '--dir', dir);
    expect(outcome(joined)).toEqual({
      code: 0,
      err: '',
      out: expect.stringContaining('This machine is agent hotel-12'),
    });
    expect(joined.out).toContain(`errand agent --settings ${join(dir, 'agent.env')}`);
    expect([await mode(dir), await mode(join(dir, 'agent.env'))]).toEqual(['700', '600']);
    expect(await readdir(dir)).toEqual(['agent.env']);
    expect(await envOf(dir)).toEqual({
      AGENT_GATEWAY_URL: gateway.url,
      AGENT_ID: 'hotel-12',
      AGENT_TOKEN: expect.stringMatching(/^agt_/),
      AGENT_SPOOL_DIR: join(dir, 'agent-hotel-12'),
    });
    const agent = await startErrand(['agent', '--settings', join(dir, 'agent.env')], { cwd: folder });
    const { body } = await gateway.api<{ taskId: string }>('POST', '/api/tasks', {
      template: 'hello',
      pool: 'hotel-12',
    });
    await until(
      async () =>
        (await gateway.api<{ status: string }>('GET', `/api/tasks/${body.taskId}`)).body.status === 'succeeded',
      'the task to succeed',
    );
    agent.child.kill('SIGTERM');
    expect((await agent.ended).code).toBe(0);
  });

  test('the token shows nowhere in what is printed, and a second use is refused with exit 4', async () => {
    const args = await line('once');
    const first = await call(...args, '--dir', await freshDir(), '--json');
    expect(JSON.parse(first.out)).toMatchObject({ agentId: 'once', pools: ['default'] });
    expect(first.out + first.err).not.toMatch(/agt_|join_/);
    const dir = await freshDir();
    const second = await call(...args, '--dir', dir);
    expect(outcome(second)).toEqual({ code: 4, out: '', err: expect.stringMatching(/^errand: .*used already.*\n$/) });
    expect(await readdir(dir)).toEqual(['join-key']);
  });

  test('a wrong or expired token is one clear line and leaves no settings', async () => {
    const dir = await freshDir();
    for (const token of ['join_wrong', 'x']) {
      const { code, err } = await call('agent', 'join', gateway.url, token, '--dir', dir);
      expect([code, err]).toEqual([4, expect.stringMatching(/^errand: .*not known here.*\n$/)]);
    }
    const args = await line('short', '--ttl', '1s');
    const expired = await until(async () => {
      const ended = await call(...args, '--id', 'somebody-else', '--dir', dir);
      return ended.err.includes('was good until') && ended;
    }, 'the token to expire');
    expect(expired.code).toBe(4);
    expect(await readdir(dir)).toEqual(['join-key']);
  });

  test.each([
    ['an address of another kind', ['ftp://x', 't']],
    ['an address with a password', ['http://u:p@x', 't']],
    ['an address with a query', ['http://x/?a=1', 't']],
    ['an id that is a path', ['http://127.0.0.1:9', 't', '--id', '../x']],
    ['a CA file that is not there', ['http://127.0.0.1:9', 't', '--ca', 'nowhere.pem']],
    ['a CA file without a certificate', ['http://127.0.0.1:9', 't', '--ca', 'words.pem']],
    ['a proxy that is no URL', ['http://127.0.0.1:9', 't', '--proxy', 'proxy:3128']],
  ])('%s is exit 2, and nothing is written', async (_what, args) => {
    await writeFile(join(folder, 'words.pem'), 'words');
    const dir = join(await freshDir(), 'agent');
    const { code, err } = await call('agent', 'join', ...args, '--dir', dir);
    expect([code, err]).toEqual([2, expect.stringMatching(/^errand: .*\n$/)]);
    await expect(stat(dir)).rejects.toThrow('ENOENT');
  });

  test('a machine may name itself where the token names nobody', async () => {
    const dir = await freshDir();
    expect((await call(...(await line('--pool', 'kiosks')), '--id', 'kiosk-7', '--dir', dir)).code).toBe(0);
    expect((await envOf(dir)).AGENT_ID).toBe('kiosk-7');
  });

  test('a folder into which others may write is refused before the token is used', async () => {
    const dir = await freshDir();
    await promisify(execFile)('chmod', ['777', dir]);
    const args = await line('open-1');
    const { code, err } = await call(...args, '--dir', dir);
    expect([code, err]).toEqual([4, expect.stringContaining('others may write into')]);
    expect((await call(...args, '--dir', await freshDir())).code).toBe(0);
  });
});

describe('a folder that belongs to an agent', () => {
  async function owned(id: string, more = ''): Promise<string> {
    const dir = await freshDir();
    expect((await call(...(await line(id)), '--dir', dir)).code).toBe(0);
    if (more) await writeFile(join(dir, 'agent.env'), (await readFile(join(dir, 'agent.env'), 'utf8')) + more);
    return dir;
  }

  test('is not given to another one without --force; its token stays good for its own folder', async () => {
    const dir = await owned('first-1');
    const before = await readFile(join(dir, 'agent.env'), 'utf8');
    const args = await line('second-1');
    const refused = await call(...args, '--dir', dir);
    expect([refused.code, refused.err]).toEqual([4, expect.stringContaining('is for agent second-1, not for first-1')]);
    expect((await call(...(await line('third-1')), '--id', 'third-1', '--dir', dir)).err).toContain('--force');
    const elsewhere = await call('agent', 'join', 'http://127.0.0.1:9', 't', '--dir', dir);
    expect([elsewhere.code, elsewhere.err]).toEqual([4, expect.stringContaining('belongs to agent first-1 of')]);
    expect(await readFile(join(dir, 'agent.env'), 'utf8')).toBe(before);
    expect((await call(...args, '--dir', dir, '--force')).code).toBe(0);
    expect((await envOf(dir)).AGENT_ID).toBe('second-1');
    expect(await readFile(join(dir, 'agent.env.old'), 'utf8')).toBe(before);
    expect(await mode(join(dir, 'agent.env.old'))).toBe('600');
  });

  test('keeps what its owner has set when the same agent joins again', async () => {
    const dir = await owned('again-1', '\n# ours\nAGENT_ALLOW=backup-*\nAGENT_CONCURRENCY=3\n');
    const before = await envOf(dir);
    expect((await call(...(await line('again-1')), '--dir', dir)).code).toBe(0);
    const after = await envOf(dir);
    expect(after).toEqual({ ...before, AGENT_TOKEN: expect.stringMatching(/^agt_/) });
    expect(after.AGENT_TOKEN).not.toBe(before.AGENT_TOKEN);
    expect(await readFile(join(dir, 'agent.env'), 'utf8')).toContain('# ours\nAGENT_ALLOW=backup-*\n');
  });

  test('a link at the place of the settings is replaced, not followed', async () => {
    const dir = await freshDir();
    const victim = join(folder, 'victim');
    await writeFile(victim, '');
    await symlink(victim, join(dir, 'agent.env'));
    expect((await call(...(await line('link-1')), '--dir', dir)).code).toBe(0);
    expect(await readFile(victim, 'utf8')).toBe('');
    expect((await envOf(dir)).AGENT_ID).toBe('link-1');
  });
});

describe('a lost answer', () => {
  /** Passes calls on to the gateway, and cuts the connection instead of giving the first answers. */
  async function lossyDoor(losses: number): Promise<{ url: string; server: Server; lost(): number }> {
    let lost = 0;
    const server = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const answer = await fetch(gateway.url + request.url, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: Buffer.concat(chunks),
      });
      const text = await answer.text();
      if (lost < losses) {
        lost += 1;
        response.destroy();
      } else response.writeHead(answer.status, { 'content-type': 'application/json' }).end(text);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server, lost: () => lost };
  }

  test('is asked for again by the same call, and by the same line after a crash; nobody else gets it', async () => {
    const door = await lossyDoor(2);
    const [, , , token] = (await line('lossy-1')) as [string, string, string, string];
    const dir = await freshDir();
    // The process dies after the gateway has answered and before it knows.
    const killed = await startErrand(['agent', 'join', door.url, token, '--dir', dir], { cwd: folder });
    await until(() => door.lost() === 1, 'the answer to be lost');
    killed.child.kill('SIGKILL');
    await killed.ended;
    const stranger = await call('agent', 'join', gateway.url, token, '--dir', await freshDir());
    expect([stranger.code, stranger.err]).toEqual([4, expect.stringContaining('used already')]);
    const again = await call('agent', 'join', door.url, token, '--dir', dir);
    expect({ code: again.code, err: again.err }).toEqual({ code: 0, err: '' });
    const { AGENT_TOKEN } = await envOf(dir);
    expect((await gateway.gateway.rooms.tokens.identify(AGENT_TOKEN)).agentId).toBe('lossy-1');
    expect(await readdir(dir)).toEqual(['agent.env']);
    door.server.close();
  });

  test('of a gateway that stays away is exit 5, and the line works later', async () => {
    const dir = await freshDir();
    const { code, err } = await call('agent', 'join', 'http://127.0.0.1:9', 'join_x', '--dir', dir);
    expect([code, err]).toEqual([5, expect.stringMatching(/run the same line again later\n$/)]);
  }, 60_000);
});

test('--ca is copied into the folder and works; a gateway in the clear is warned of', async () => {
  const certificates = await makeCertificates(await mkdtemp(join(folder, 'tls-')));
  const door = await httpsDoor(gateway.url, certificates);
  const [, , , token] = (await line('tls-join')) as [string, string, string, string];
  const dir = await freshDir();
  const joined = await call('agent', 'join', door.url, token, '--dir', dir, '--ca', certificates.caFile);
  expect({ code: joined.code, err: joined.err }).toEqual({ code: 0, err: '' });
  expect((await envOf(dir)).AGENT_CA_FILE).toBe(join(dir, 'ca.pem'));
  expect(await readFile(join(dir, 'ca.pem'), 'utf8')).toBe(certificates.ca);
  await door.close();
  const clear = await call('agent', 'join', 'http://no-such-host.invalid', 'join_x', '--dir', await freshDir());
  expect([clear.code, clear.err]).toEqual([5, expect.stringContaining('is not encrypted')]);
}, 60_000);

describe('the systemd unit', () => {
  test('is printed by itself by join --systemd and by agent unit, the same each time', async () => {
    const dir = await freshDir();
    const joined = await call(...(await line('unit-1')), '--dir', dir, '--systemd');
    expect(joined.code).toBe(0);
    expect(joined.err).toContain('This machine is agent unit-1');
    const unit = await call('agent', 'unit', '--settings', join(dir, 'agent.env'));
    expect(unit.out).toBe(joined.out);
    const written = join(dir, 'errand-agent.service');
    await call(...(await line('unit-1')), '--dir', dir, '--systemd', written);
    expect(await readFile(written, 'utf8')).toBe(joined.out);
    expect((await call('agent', 'unit')).code).toBe(2);
  });

  const SAMPLE = {
    agentId: 'hotel-12',
    settingsFile: '/srv/a b/100%/agent.env',
    writable: ['/srv/a b/100%', '/var/spool/$x'],
    killGraceMs: 10_500,
    user: 'errand',
    command: ['/usr/bin/node', '/opt/errand/main.js'],
  };

  test('stops gently, starts again, but not against an instance that has taken over, and may do little', () => {
    const lines = systemdUnit(SAMPLE).split('\n');
    for (const expected of [
      'User=errand',
      'Restart=always',
      'RestartPreventExitStatus=2 4',
      'KillMode=mixed',
      'TimeoutStopSec=31',
      'NoNewPrivileges=yes',
      'ProtectSystem=strict',
      'ReadWritePaths="/srv/a b/100%%" /var/spool/$$x',
      'CapabilityBoundingSet=',
      'ExecStart=/usr/bin/node /opt/errand/main.js agent --settings "/srv/a b/100%%/agent.env"',
    ])
      expect(lines).toContain(expected);
    expect(() => systemdUnit({ ...SAMPLE, settingsFile: '/srv/a\nExecStart=/bin/evil' })).toThrow(/cannot be written/);
  });

  test('is one that systemd accepts', async () => {
    const dir = await freshDir();
    await mkdir(join(dir, 'a b'));
    const file = join(dir, 'errand-agent.service');
    const here = { settingsFile: join(dir, 'a b', 'agent.env'), writable: [join(dir, 'a b')], user: 'root' };
    await writeFile(file, systemdUnit({ ...SAMPLE, ...here, command: [process.execPath, join(dir, 'main.js')] }));
    const verified = await promisify(execFile)('systemd-analyze', ['verify', '--man=no', file]).then(
      ({ stderr }) => stderr,
      (error: NodeJS.ErrnoException & { stderr?: string }) =>
        error.code === 'ENOENT' ? '' : `failed: ${error.stderr}`,
    );
    expect(verified.split('\n').filter((said) => said.includes('errand-agent.service'))).toEqual([]);
    expect(verified).not.toMatch(/^failed/);
  });
});

describe('the settings file', () => {
  test('keeps everything else of what was there; each value is read back as it was given', () => {
    const before = "# a\nexport AGENT_ID=old\nAGENT_ID=twice\nOTHER='x y'\n\n# end\n";
    const text = withValues(before, { AGENT_ID: 'new', AGENT_SPOOL_DIR: "/srv/it's #1" });
    expect(text).toBe(`# a\nAGENT_ID=new\nOTHER='x y'\n\n# end\nAGENT_SPOOL_DIR="/srv/it's #1"\n`);
    expect(withValues('', { A: '' })).toBe('A=\n');
  });

  test('a value that an env file cannot hold is refused instead of becoming another one', () => {
    for (const value of ['a\nAGENT_ALLOW=*', `it's "both"`, "line\\nbreak's"])
      expect(() => withValues('', { AGENT_SPOOL_DIR: value })).toThrow(/AGENT_SPOOL_DIR: an env file cannot hold/);
    // A line that looks like a setting but is part of another one's text.
    expect(() => withValues('NOTE="two\nAGENT_ID=lines"\n', { AGENT_ID: 'x' })).toThrow(/cannot hold/);
  });
});
