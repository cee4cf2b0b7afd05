import { generateKeyPairSync } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readlink, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { InstallFolder, MAX_TRIES } from '../../../src/agents/worker/upgrade/install-folder.ts';
import { isSignedBy, signRelease } from '../../../src/agents/worker/upgrade/signature.ts';
import { manualClock } from '../../../src/clock.ts';
import { readAgentSettings } from '../../../src/config/agent.ts';
import { readUpgradeKey } from '../../../src/config/upgrade-key.ts';

let dir: string;
let install: InstallFolder;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'errand-install-'));
  install = new InstallFolder(dir, manualClock(1_000));
  await install.prepare();
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const release = (version: string) => ({ version, sha256: version.replaceAll('.', '').padEnd(64, 'a') });

async function unpacked(version: string): Promise<void> {
  const folder = install.path('versions', '.unpack-x');
  await mkdir(folder);
  await writeFile(join(folder, 'main.mjs'), version);
  await install.adopt(folder, version);
}

const trialOf = async () => (await install.read()).trial!;

describe('the installation folder', () => {
  it('links a version on trial, remembers what ran before, and goes back to it', async () => {
    await unpacked('1.0.0');
    await install.beginTrial(release('1.0.0'));
    await install.passTrial(await trialOf());
    await unpacked('1.1.0');
    await install.beginTrial(release('1.1.0'));
    expect(await trialOf()).toEqual({ ...release('1.1.0'), from: '1.0.0' });
    expect(await readlink(install.path('current'))).toBe(join('versions', '1.1.0'));
    await install.countStart(await trialOf());
    expect(await install.failTrial(await trialOf(), 'it fell')).toMatchObject({ tries: 1, reason: 'it fell' });
    expect(await install.current()).toBe('1.0.0');
    expect(await readdir(install.path('versions'))).toEqual(['1.0.0']);
  });

  it('goes back to the first program where nothing was installed before', async () => {
    await unpacked('1.0.0');
    await install.beginTrial(release('1.0.0'));
    await install.failTrial(await trialOf(), 'it fell');
    expect(await install.current()).toBeNull();
  });

  it('marks a package as bad after three starts in vain, and a passed one as nothing', async () => {
    for (let tries = 1; tries <= MAX_TRIES; tries += 1) {
      await unpacked('1.0.0');
      await install.beginTrial(release('1.0.0'));
      expect(await install.countStart(await trialOf())).toBe(tries);
      const failure = await install.failTrial(await trialOf(), 'it fell');
      expect(failure).toMatchObject({ tries, ...(tries === MAX_TRIES && { isBad: true }) });
      expect(failure.isBad === true).toBe(tries === MAX_TRIES);
    }
    await unpacked('1.1.0');
    await install.beginTrial(release('1.1.0'));
    await install.countStart(await trialOf());
    await install.passTrial(await trialOf());
    expect(Object.values((await install.read()).failures)).toMatchObject([{ version: '1.0.0', isBad: true }]);
  });

  it('does not count a start that was ended by a stop of the machine', async () => {
    await unpacked('1.0.0');
    await install.beginTrial(release('1.0.0'));
    for (let i = 0; i < 5; i += 1) {
      expect(await install.countStart(await trialOf())).toBe(1);
      await install.uncountStart(await trialOf());
    }
  });

  it('keeps a version and its predecessor only', async () => {
    for (const version of ['1.0.0', '1.1.0', '1.2.0']) {
      await unpacked(version);
      await install.beginTrial(release(version));
      await install.passTrial(await trialOf());
    }
    expect((await readdir(install.path('versions'))).sort()).toEqual(['1.1.0', '1.2.0']);
  });

  it('never replaces the version that runs', async () => {
    await unpacked('1.0.0');
    await install.beginTrial(release('1.0.0'));
    await mkdir(install.path('versions', '.unpack-y'));
    await expect(install.adopt(install.path('versions', '.unpack-y'), '1.0.0')).rejects.toThrow('the one that runs');
  });

  it.each(['', '{', 'null', '[]', '{"trial":{"version":"../../x","sha256":"a","from":null}}', '{"trial":1}'])(
    'takes a state of %j for an empty one',
    async (text) => {
      await writeFile(install.path('upgrade.json'), text);
      expect(await install.read()).toEqual({ failures: {} });
    },
  );

  it('removes what an interrupted unpacking left', async () => {
    await mkdir(install.path('versions', '.unpack-z'));
    await install.prepare();
    expect(await readdir(install.path('versions'))).toEqual([]);
  });
});

describe('the signature of a package', () => {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const signed = { ...release('1.2.3'), signature: signRelease(release('1.2.3'), privateKey) };

  it('holds for this version with this content under this key alone', () => {
    expect(isSignedBy(signed, publicKey)).toBe(true);
    expect(isSignedBy({ ...signed, version: '1.2.4' }, publicKey)).toBe(false);
    expect(isSignedBy({ ...signed, sha256: 'b'.repeat(64) }, publicKey)).toBe(false);
    expect(isSignedBy(signed, generateKeyPairSync('ed25519').publicKey)).toBe(false);
    for (const signature of [null, '', 'x', 'A'.repeat(86)])
      expect(isSignedBy({ ...signed, signature }, publicKey)).toBe(false);
  });

  it('is checked with a key given as PEM, its inner line, or its 32 bytes', () => {
    const der = publicKey.export({ format: 'der', type: 'spki' });
    const pem = publicKey.export({ format: 'pem', type: 'spki' }) as string;
    for (const text of [pem, pem.replaceAll('\n', '\\n'), der.toString('base64'), der.subarray(12).toString('base64')])
      expect(isSignedBy(signed, readUpgradeKey(text)!)).toBe(true);
  });

  it('needs a key that is one; another kind is refused by name', () => {
    const rsa = generateKeyPairSync('rsa', { modulusLength: 1024 }).publicKey.export({ format: 'der', type: 'spki' });
    for (const text of ['x', 'AAAA', '!', rsa.toString('base64')]) {
      const env = { AGENT_GATEWAY_URL: 'http://127.0.0.1:1', AGENT_TOKEN: 't', AGENT_ID: 'a', AGENT_UPGRADE_KEY: text };
      expect(() => readAgentSettings(env)).toThrow('AGENT_UPGRADE_KEY: must be a public Ed25519 key');
    }
  });
});
