import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { openSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { compiledSrc } from '../support/compiled.ts';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';

let house: Processes;
const children: ChildProcess[] = [];
let templates: string;
beforeEach(async () => {
  templates = await mkdtemp(join(tmpdir(), 'errand-upgrade-'));
  // A task that ends when the file is there.
  const command = JSON.stringify(['sh', '-c', `until [ -e '${templates}/gate' ]; do sleep 0.05; done`]);
  await writeFile(join(templates, 'gated.yaml'), `id: gated\ntitle: { en: Gated }\ncommand: ${command}\n`);
  house = new Processes({ ERRAND_HEARTBEAT_MS: '200', ERRAND_TEMPLATES_DIR: templates });
  // A task whose result is which packages have been started by then.
  const witness = JSON.stringify(['cat', join(house.folder, 'starts')]);
  await writeFile(join(templates, 'witness.yaml'), `id: witness\ntitle: { en: Witness }\ncommand: ${witness}\n`);
  await house.gateway();
});
afterEach(async () => {
  await Promise.all(children.splice(0).map(ended));
  await house.end();
  await rm(templates, { recursive: true, force: true });
});

interface Agent {
  agentId: string;
  version: string;
  online: boolean;
  upgrade?: { version: string; state: string; tries: number; reason?: string };
}

const install = () => join(house.folder, 'a1', 'install');
const starts = async (version: string) =>
  (await readFile(join(house.folder, 'starts'), 'utf8').catch(() => '')).split('\n').filter((line) => line === version)
    .length;
const agent = async () => (await house.api<{ agents: Agent[] }>('GET', '/api/agents')).agents[0];
const audits = async (action: string) =>
  (await house.api<{ entries: { action: string }[] }>('GET', '/api/audit?limit=200')).entries.filter(
    (entry) => entry.action === action,
  );

async function ended(child: ChildProcess): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
  const exit = new Promise<number | null>((resolve) => child.once('exit', (code) => resolve(code)));
  child.kill('SIGTERM');
  const late = setTimeout(() => child.kill('SIGKILL'), 15_000);
  const code = await exit;
  clearTimeout(late);
  return code;
}

/** A package of one module: an agent that says that it is `version`, whatever it is called when it is published. */
async function packageFor(name: string, version: string, before = '', patienceMs = 3_600_000): Promise<string> {
  const source = await compiledSrc();
  const module = (path: string) => JSON.stringify(pathToFileURL(join(source, path)).href);
  const file = join(house.folder, `${name}.mjs`);
  await writeFile(
    file,
    `import { appendFileSync } from 'node:fs';
import { createAgent } from ${module('agents/worker/agent.js')};
import { systemClock } from ${module('clock.js')};
import { readAgentSettings } from ${module('config/agent.js')};
import { createLog } from ${module('log.js')};
appendFileSync(${JSON.stringify(join(house.folder, 'starts'))}, ${JSON.stringify(`${name}\n`)});
${before}
const tuning = {
  backoff: { baseMs: 20, factor: 1.5, capMs: 200, jitter: 0.5 },
  pullWaitMs: 500,
  upgrade: { tryPause: { baseMs: 50, factor: 1, capMs: 50, jitter: 0 }, patienceMs: ${patienceMs}, idleCheckMs: 20 },
};
const settings = readAgentSettings(process.env);
const supervisor = { registered: (version) => process.send({ errand: 'registered', version }) };
const agent = createAgent({ settings, log: createLog({ level: 'info' }), clock: systemClock, version: '${version}', supervisor, tuning });
process.on('SIGTERM', () => agent.stop());
process.once('disconnect', () => agent.stop());
agent.ended.then((end) => process.exit(end.exitCode));
await agent.start();
`,
  );
  return file;
}

/** `errand agent --supervise` with short waits, on a program that says it is `version`. */
async function supervised(
  version: string,
  env: Record<string, string> = {},
  registerMs = 60_000,
  patienceMs = 3_600_000,
): Promise<ChildProcess> {
  const source = await compiledSrc();
  const module = (path: string) => JSON.stringify(pathToFileURL(join(source, path)).href);
  const base = await packageFor('base', version, '', patienceMs);
  const script = join(house.folder, 'supervisor.mjs');
  await writeFile(
    script,
    `import { InstallFolder } from ${module('agents/worker/upgrade/install-folder.js')};
import { Supervisor } from ${module('agents/worker/upgrade/supervisor.js')};
import { systemClock } from ${module('clock.js')};
import { createLog } from ${module('log.js')};
const supervisor = new Supervisor({
  install: new InstallFolder(process.env.AGENT_SPOOL_DIR + '/install', systemClock),
  baseScript: ${JSON.stringify(base)}, nodeArgs: [], args: [], cwd: process.cwd(), env: process.env,
  log: createLog({ level: 'info' }),
  isReachable: () => fetch(process.env.AGENT_GATEWAY_URL + '/healthz').then(() => true, () => false),
  tuning: { registerMs: ${registerMs}, aliveMs: 300, killMs: 500, restart: { baseMs: 50, factor: 1, capMs: 50, jitter: 0 } },
});
process.on('SIGTERM', () => supervisor.stop());
supervisor.ended.then((code) => process.exit(code));
await supervisor.start();
`,
  );
  const out = openSync(join(house.folder, 'a1.log'), 'a');
  const child = spawn(process.execPath, [script], {
    cwd: house.folder,
    stdio: ['ignore', out, out],
    env: { PATH: process.env.PATH, HOME: house.folder, ...(await agentEnv()), AGENT_AUTO_UPGRADE: 'idle', ...env },
  });
  children.push(child);
  await until(async () => (await agent())?.version === version, `version ${version} to register`);
  return child;
}

async function agentEnv(): Promise<Record<string, string>> {
  return {
    AGENT_GATEWAY_URL: house.url,
    AGENT_TOKEN: await house.agentToken('a1'),
    AGENT_ID: 'a1',
    AGENT_SPOOL_DIR: join(house.folder, 'a1'),
    AGENT_LOG_LEVEL: 'info',
  };
}

async function errand(...args: string[]): Promise<string> {
  const main = join(await compiledSrc(), 'cli', 'main.js');
  const { stdout } = await promisify(execFile)(process.execPath, [main, ...args], {
    cwd: house.folder,
    env: { PATH: process.env.PATH, ERRAND_URL: house.url, ERRAND_TOKEN: house.adminToken },
  });
  return stdout.trim();
}

const submit = async (template = 'gated') =>
  (await house.api<{ taskId: string }>('POST', '/api/tasks', { template, args: {} })).taskId;
const openGate = () => writeFile(join(templates, 'gate'), '');
const task = (id: string) =>
  house.api<{ status: string; summary?: string; runs: { outcome: string | null }[] }>('GET', `/api/tasks/${id}`);
const statusIs = (id: string, status: string) => until(async () => (await task(id)).status === status, status);

describe('an agent that upgrades itself', () => {
  it('never loops on a package that says it is the old version: three tries, told once, back to work (A07)', async () => {
    await supervised('1.9.9');
    const running = await submit();
    await statusIs(running, 'running');
    await errand('agents', 'publish', '2.0.0', await packageFor('2.0.0', '1.9.9'));
    await until(async () => (await agent())?.upgrade?.state === 'waiting', 'the package to be ready');
    expect(await task(running)).toMatchObject({ status: 'running' });
    expect(await starts('2.0.0')).toBe(0);
    await openGate();

    await until(async () => (await agent())?.upgrade?.state === 'failed', 'the upgrade to be given up', 60_000);
    expect(await task(running)).toMatchObject({ status: 'succeeded', runs: [{ outcome: 'succeeded' }] });
    expect(await agent()).toMatchObject({
      version: '1.9.9',
      online: true,
      upgrade: { version: '2.0.0', state: 'failed', tries: 3, reason: 'it says that it is version "1.9.9"' },
    });
    expect(await starts('2.0.0')).toBe(3);
    expect(await audits('agent.upgrade_failed')).toHaveLength(1);
    expect(await errand('agents', 'list')).toContain('upgrade to 2.0.0 has failed: it says that it is version');
    await expect(readlink(join(install(), 'current'))).rejects.toThrow(/ENOENT/);

    await statusIs(await submit(), 'succeeded');
    // A start anew of everything changes nothing: it is marked on the disk.
    await ended(children.pop()!);
    await supervised('1.9.9');
    await until(async () => (await agent())?.upgrade?.state === 'failed', 'it to be told again', 60_000);
    expect(await starts('2.0.0')).toBe(3);
    expect(await audits('agent.upgrade_failed')).toHaveLength(1);
  });

  it('takes over a newer version, and goes back to it from one that dies at its start', async () => {
    await supervised('1.0.0');
    await errand('agents', 'publish', '1.1.0', await packageFor('1.1.0', '1.1.0'));
    await until(async () => (await agent())?.version === '1.1.0', 'the new version', 60_000);
    const state = async () => JSON.parse(await readFile(join(install(), 'upgrade.json'), 'utf8')) as { trial?: object };
    await until(async () => (await state()).trial === undefined, 'the new version to pass');
    expect(await readlink(join(install(), 'current'))).toBe(join('versions', '1.1.0'));
    expect(await starts('1.1.0')).toBe(1);

    await errand('agents', 'publish', '1.2.0', await packageFor('1.2.0', '1.2.0', 'process.exit(1);'));
    await until(async () => (await agent())?.upgrade?.state === 'failed', 'the upgrade to be given up', 60_000);
    expect(await agent()).toMatchObject({
      version: '1.1.0',
      upgrade: { tries: 3, reason: expect.stringContaining('exit code 1') },
    });
    expect(await starts('1.2.0')).toBe(3);
    expect(await readlink(join(install(), 'current'))).toBe(join('versions', '1.1.0'));

    // The next number is another chance.
    await errand('agents', 'publish', '1.2.1', await packageFor('1.2.1', '1.2.1'));
    await until(async () => (await agent())?.version === '1.2.1', 'the repaired version', 60_000);
    await openGate();
    await statusIs(await submit(), 'succeeded');
  });

  it('goes back from a version that hangs at its start and never registers: three tries, then never again', async () => {
    await supervised('1.0.0', {}, 1_000);
    const hang = 'setInterval(() => undefined, 1000); await new Promise(() => undefined);';
    await errand('agents', 'publish', '1.1.0', await packageFor('1.1.0', '1.1.0', hang));
    await until(async () => (await agent())?.upgrade?.state === 'failed', 'the upgrade to be given up', 90_000);
    expect(await agent()).toMatchObject({
      version: '1.0.0',
      online: true,
      upgrade: { version: '1.1.0', tries: 3, reason: expect.stringContaining('register') },
    });
    expect(await starts('1.1.0')).toBe(3);
    await openGate();
    await statusIs(await submit(), 'succeeded');
    expect(await starts('1.1.0')).toBe(3);
  });

  it('is not kept from it by work without a pause: after its patience it takes nothing new, and what runs ends first', async () => {
    await supervised('1.0.0', { AGENT_CONCURRENCY: '2' }, 60_000, 100);
    const running = await submit();
    await statusIs(running, 'running');
    await errand('agents', 'publish', '1.1.0', await packageFor('1.1.0', '1.1.0'));
    await until(
      async () => (await readFile(join(house.folder, 'a1.log'), 'utf8')).includes('upgrade.draining'),
      'its patience to end',
    );
    // One of the two slots is free all the time.
    const later = await submit('witness');
    expect(await task(running)).toMatchObject({ status: 'running' });
    expect(await starts('1.1.0')).toBe(0);
    await openGate();
    await statusIs(later, 'succeeded');
    expect(await task(running)).toMatchObject({ status: 'succeeded', runs: [{ outcome: 'succeeded' }] });
    expect(await task(later)).toMatchObject({ summary: 'base\n1.1.0' });
    expect(await agent()).toMatchObject({ version: '1.1.0', online: true });
  });

  it('with a key refuses what is not signed by it, and takes what is', async () => {
    const { publicKey, privateKey } = generateKeyPairSync('ed25519');
    await mkdir(install(), { recursive: true });
    const keyFile = join(house.folder, 'key.pem');
    await writeFile(keyFile, privateKey.export({ format: 'pem', type: 'pkcs8' }));
    const key = publicKey.export({ format: 'der', type: 'spki' }).toString('base64');
    await supervised('1.0.0', { AGENT_UPGRADE_KEY: key });
    const file = await packageFor('1.1.0', '1.1.0');
    await errand('agents', 'publish', '1.1.0', file);
    await until(async () => (await agent())?.upgrade?.state === 'refused', 'the refusal');
    expect((await agent())?.upgrade).toMatchObject({ reason: 'it has no signature', tries: 0 });

    const signatureFile = join(house.folder, 'package.sig');
    await writeFile(signatureFile, await errand('agents', 'sign', '1.1.1', file, '--key', keyFile));
    await errand('agents', 'publish', '1.1.2', file, '--signature', signatureFile);
    await until(async () => (await agent())?.upgrade?.reason?.includes('AGENT_UPGRADE_KEY'), 'the other refusal');
    expect(await starts('1.1.0')).toBe(0);

    const signed = await packageFor('1.2.0', '1.2.0');
    await writeFile(signatureFile, await errand('agents', 'sign', '1.2.0', signed, '--key', keyFile));
    await errand('agents', 'publish', '1.2.0', signed, '--signature', signatureFile);
    await until(async () => (await agent())?.version === '1.2.0', 'the signed version', 60_000);
  });

  it('works under the command line as it is, and ends with its supervisor', async () => {
    const main = join(await compiledSrc(), 'cli', 'main.js');
    const settingsFile = join(house.folder, 'agent.env');
    const lines = Object.entries({ ...(await agentEnv()), AGENT_AUTO_UPGRADE: 'idle' }).map(
      ([name, value]) => `${name}=${value}`,
    );
    await writeFile(settingsFile, `${lines.join('\n')}\n`, { mode: 0o600 });
    const out = openSync(join(house.folder, 'a1.log'), 'a');
    const child = spawn(process.execPath, [main, 'agent', '--supervise', '--settings', settingsFile], {
      cwd: house.folder,
      stdio: ['ignore', out, out],
      env: { PATH: process.env.PATH, HOME: house.folder },
    });
    children.push(child);
    await until(async () => (await agent())?.online, 'the agent to register');
    const file = await packageFor('9.0.0', '9.0.0');
    // The module reads the environment, the settings are in a file: as a real package would.
    const text = await readFile(file, 'utf8');
    await writeFile(file, `process.loadEnvFile(${JSON.stringify(settingsFile)});\n${text}`);
    await errand('agents', 'publish', '9.0.0', file);
    await until(async () => (await agent())?.version === '9.0.0', 'the new version', 60_000);
    expect(await ended(child)).toBe(0);
    await until(async () => (await house.api<{ agents: Agent[] }>('GET', '/api/agents')).agents.length === 1);
    expect(JSON.parse(await readFile(join(install(), 'upgrade.json'), 'utf8'))).toMatchObject({
      trial: { version: '9.0.0', from: null },
    });
  });
});
