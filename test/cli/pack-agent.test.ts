import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { unpack } from '../../src/agents/worker/upgrade/archive.ts';
import { entryIn } from '../../src/agents/worker/upgrade/install-folder.ts';
import { VERSION } from '../../src/version.ts';

const run = promisify(execFile);
const script = join(import.meta.dirname, '../../scripts/pack-agent.mjs');
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-pack-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

it('scripts/pack-agent.mjs makes a package that agents can unpack and start, without a database driver', async () => {
  const file = join(folder, 'agent.tar.gz');
  const { stdout } = await run(process.execPath, [script, '--out', file]);
  expect(stdout).toContain(`errand agents publish ${VERSION} ${file}`);
  const place = join(folder, 'unpacked');
  await unpack(file, place);
  const program = await entryIn(place);
  expect((await run(process.execPath, [program, 'version'])).stdout.trim()).toBe(VERSION);
  const doctor = await run(process.execPath, [program, '--no-settings', 'agent'], {
    env: { PATH: process.env.PATH },
  }).catch((error: { code: number; stderr: string }) => error);
  // It has loaded everything and knows what it lacks.
  expect(doctor).toMatchObject({ code: 2, stderr: expect.stringContaining('AGENT_GATEWAY_URL') });
  expect(existsSync(join(place, 'package/node_modules/better-sqlite3'))).toBe(false);
}, 180_000);
