import { createHash, createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto';
import { createReadStream, readFileSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import type { Command } from 'commander';
import { RELEASE_VERSION, type UpgradeStatus } from '../agents/protocol.ts';
import { AppError, messageOf } from '../errors.ts';
import type { AgentNote } from '../releases/agent-notes.ts';
import type { ReleaseView } from '../releases/releases.ts';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';
import { localTime, table } from './table.ts';

/** `errand agents publish|sign|releases|withdraw` */
export function publishCommands(agents: Command, act: Act): void {
  agents
    .command('publish <version> <file>')
    .description('publish a package of the agent: agents with AGENT_AUTO_UPGRADE=idle install it')
    .option('--signature <file>', 'what `errand agents sign` printed')
    .addHelpText('after', '\nExample:\n  errand agents publish 1.2.0 errand-1.2.0.tar.gz --signature errand-1.2.0.sig')
    .action(act(publish));
  agents
    .command('sign <version> <file>')
    .description('print the signature of a package; works offline, on the machine that has the key')
    .requiredOption('--key <file>', 'private Ed25519 key (PEM)')
    .addHelpText(
      'after',
      '\nExample:\n  errand agents sign 1.2.0 errand-1.2.0.tar.gz --key release.pem > errand-1.2.0.sig',
    )
    .action(act(sign));
  agents.command('releases').description('list published packages of the agent').action(act(list));
  agents
    .command('withdraw <version>')
    .description('offer a package no more; agents that run it go on running it')
    .action(act(withdraw));
}

async function publish({ api, show }: Context, version: string, file: string, options: { signature?: string }) {
  await checkFile(file);
  const signature = options.signature === undefined ? undefined : readText(options.signature, '--signature').trim();
  await checkPackage(file);
  const query = signature === undefined ? '' : `?signature=${encodeURIComponent(signature)}`;
  const to = path`/api/releases/${version}` + query;
  const release = await api().put<ReleaseView>(to, createReadStream(file));
  show(release, () => `version ${release.version} is published: sha256 ${release.sha256}${signedText(release)}`);
}

async function sign({ show }: Context, version: string, file: string, { key }: { key: string }): Promise<void> {
  await checkFile(file);
  const { signRelease } = await import('../agents/worker/upgrade/signature.ts');
  const privateKey = privateKeyOf(key);
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
  const sha256 = hash.digest('hex');
  const signature = signRelease({ version: checkedVersion(version), sha256 }, privateKey);
  const publicKey = createPublicKey(privateKey).export({ format: 'der', type: 'spki' }).toString('base64');
  // Nothing but the signature, so that it can go into a file.
  show({ version, sha256, signature, publicKey }, () => signature);
}

async function list({ api, show }: Context): Promise<void> {
  const answer = await api().get<{ releases: ReleaseView[] }>('/api/releases');
  show(answer, () => {
    const rows = answer.releases.map((release) => [
      release.version,
      stateOf(release),
      release.signature === null ? 'no' : 'yes',
      String(release.bytes),
      release.sha256,
      localTime(release.publishedAt),
    ]);
    return table(['VERSION', 'STATE', 'SIGNED', 'BYTES', 'SHA256', 'PUBLISHED'], rows, 'Nothing has been published.');
  });
}

async function withdraw({ api, show }: Context, version: string): Promise<void> {
  const release = await api().post<ReleaseView>(path`/api/releases/${version}/withdraw`);
  show(release, () => `version ${release.version} is offered no more`);
}

/** What a list of agents says of one that needs a person, or is about to change its version. */
export function agentNotes({ deadReports, upgrade }: Partial<AgentNote>): string[] {
  const dead = deadReports ? [`${deadReports.count} dead ${deadReports.count === 1 ? 'report' : 'reports'}`] : [];
  if (!upgrade) return dead;
  const why = upgrade.reason === undefined ? '' : `: ${upgrade.reason}`;
  return [...dead, `upgrade to ${upgrade.version} ${UPGRADE_WORDS[upgrade.state]}${why}`];
}

const UPGRADE_WORDS: Readonly<Record<UpgradeStatus['state'], string>> = {
  loading: 'is being loaded',
  waiting: 'waits',
  trying: 'is being tried',
  failed: 'has failed',
  refused: 'is refused',
};

function stateOf({ current, withdrawnAt }: ReleaseView): string {
  if (withdrawnAt !== null) return 'withdrawn';
  return current ? 'current' : 'older';
}

function signedText({ signature }: ReleaseView): string {
  return signature === null ? ' (not signed: agents with AGENT_UPGRADE_KEY refuse it)' : '';
}

/** As the agents will: a mistake is told here and not on every machine. @throws AppError invalid_request */
async function checkPackage(file: string): Promise<void> {
  const [{ mkdtemp, rm }, { tmpdir }, { join }] = await Promise.all([
    import('node:fs/promises'),
    import('node:os'),
    import('node:path'),
  ]);
  const { unpack } = await import('../agents/worker/upgrade/archive.ts');
  const { entryIn } = await import('../agents/worker/upgrade/install-folder.ts');
  const folder = await mkdtemp(join(tmpdir(), 'errand-package-'));
  try {
    await unpack(file, folder);
    await entryIn(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function privateKeyOf(file: string): KeyObject {
  const text = readText(file, '--key');
  let key: KeyObject;
  try {
    key = createPrivateKey(text);
  } catch (error) {
    throw badKey(file, error);
  }
  if (key.asymmetricKeyType !== 'ed25519') throw badKey(file);
  return key;
}

function badKey(file: string, cause?: unknown): AppError {
  return new AppError('invalid_request', `--key: ${file} is not a private Ed25519 key without a passphrase (PEM)`, {
    field: '--key',
    cause,
  });
}

function checkedVersion(version: string): string {
  if (version.length <= 32 && RELEASE_VERSION.test(version)) return version;
  throw new AppError('invalid_request', `version: must be a version such as 1.2.3 but is '${version}'`, {
    field: 'version',
  });
}

async function checkFile(file: string): Promise<void> {
  const found = await stat(file).catch(() => undefined);
  if (found?.isFile()) return;
  throw new AppError('invalid_request', `file: ${file} is not a file`, { field: 'file' });
}

function readText(file: string, field: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new AppError('invalid_request', `${field}: cannot read ${file} (${messageOf(error)})`, { field });
  }
}
