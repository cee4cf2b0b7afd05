import { execFile, spawn } from 'node:child_process';
import { cpSync, existsSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { unpack } from '../../src/agents/worker/upgrade/archive.ts';
import { entryIn } from '../../src/agents/worker/upgrade/install-folder.ts';
import { VERSION } from '../../src/version.ts';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';
import { errand } from './errand.ts';

const run = promisify(execFile);
const script = join(import.meta.dirname, '../../scripts/pack-agent.mjs');
let folder: string;
let place: string;
let packed: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-pack-'));
  place = join(folder, 'unpacked');
  const file = join(folder, 'agent.tar.gz');
  packed = (await run(process.execPath, [script, '--out', file])).stdout;
  await unpack(file, place);
}, 180_000);
afterAll(() => rm(folder, { recursive: true, force: true }));

it('scripts/pack-agent.mjs makes a package that agents can unpack and start, without a database driver', async () => {
  expect(packed).toContain(`errand agents publish ${VERSION} ${join(folder, 'agent.tar.gz')}`);
  const program = await entryIn(place);
  expect((await run(process.execPath, [program, 'version'])).stdout.trim()).toBe(VERSION);
  const doctor = await run(process.execPath, [program, '--no-settings', 'agent'], {
    env: { PATH: process.env.PATH },
  }).catch((error: { code: number; stderr: string }) => error);
  // It has loaded everything and knows what it lacks.
  expect(doctor).toMatchObject({ code: 2, stderr: expect.stringContaining('AGENT_GATEWAY_URL') });
  expect(existsSync(join(place, 'package/node_modules/better-sqlite3'))).toBe(false);
});

/** The same program under a later number, as the script would have packed it from a later clone. */
async function nextPackage(version: string): Promise<string> {
  const next = join(folder, version);
  cpSync(place, next, { recursive: true });
  for (const name of ['package.json', 'dist/version.js']) {
    const path = join(next, 'package', name);
    writeFileSync(path, readFileSync(path, 'utf8').replace(VERSION, version));
  }
  const file = join(folder, `${version}.tar.gz`);
  await run('tar', ['-czf', file, '-C', next, 'package']);
  return file;
}

it('an agent of one such package upgrades itself to the next that is published, and works', async () => {
  const house = new Processes({ ERRAND_HEARTBEAT_MS: '200' });
  try {
    await house.gateway();
    const log = openSync(join(house.folder, 'a1.log'), 'a');
    const agent = spawn(process.execPath, [await entryIn(place), '--no-settings', 'agent', '--supervise'], {
      cwd: house.folder,
      stdio: ['ignore', log, log],
      env: {
        PATH: process.env.PATH,
        HOME: house.folder,
        AGENT_GATEWAY_URL: house.url,
        AGENT_TOKEN: await house.agentToken('a1'),
        AGENT_ID: 'a1',
        AGENT_SPOOL_DIR: join(house.folder, 'a1'),
        AGENT_AUTO_UPGRADE: 'idle',
      },
    });
    const exited = new Promise((resolve) => agent.once('exit', resolve));
    try {
      const isOnline = async (version: string) => {
        const { agents } = await house.api<{ agents: { version: string; online: boolean }[] }>('GET', '/api/agents');
        return agents[0]?.version === version && agents[0].online;
      };
      await until(() => isOnline(VERSION), 'the first version', 30_000);
      const env = { ERRAND_URL: house.url, ERRAND_TOKEN: house.adminToken };
      const published = await errand(['agents', 'publish', '99.0.0', await nextPackage('99.0.0')], {
        cwd: house.folder,
        env,
      });
      expect(published).toMatchObject({ code: 0, err: '' });
      await until(() => isOnline('99.0.0'), 'the next version', 60_000);
      const { taskId } = await house.api<{ taskId: string }>('POST', '/api/tasks', {
        template: 'hello',
        args: { name: 'Ada' },
      });
      const status = async () => (await house.api<{ status: string }>('GET', `/api/tasks/${taskId}`)).status;
      await until(async () => (await status()) === 'succeeded', 'a task to be done by it', 30_000);
    } finally {
      agent.kill('SIGTERM');
      setTimeout(() => agent.kill('SIGKILL'), 20_000).unref();
      expect(await exited).toBe(0);
    }
  } finally {
    await house.end();
  }
}, 180_000);
