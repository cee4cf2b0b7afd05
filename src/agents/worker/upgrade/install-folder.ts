import { lstat, mkdir, readdir, readFile, readlink, rename, rm, stat, symlink } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { Clock } from '../../../clock.ts';
import { AppError } from '../../../errors.ts';
import { RELEASE_VERSION, type ReleaseOffer } from '../../protocol.ts';
import { replaceFile } from '../records.ts';
import { SINGLE_FILE } from './archive.ts';

/** A version is started in vain so often at most; then it is bad until another package is published. */
export const MAX_TRIES = 3;

/** A version that is the current one, but has not yet proved that it works. */
export interface Trial {
  version: string;
  sha256: string;
  /** What ran before it; null: the program that the supervisor belongs to. */
  from: string | null;
}

/** What became of a package in vain. */
export interface Failure {
  version: string;
  tries: number;
  /** Of the last, epoch milliseconds. */
  at: number;
  reason?: string;
  isBad?: boolean;
}

export interface InstallState {
  trial?: Trial;
  /** By sha256 of the package. */
  failures: Record<string, Failure>;
}

/** As many packages are remembered as bad; older ones would be refused by their version anyway. */
const MAX_FAILURES = 50;

/**
 * The folder of an agent's versions: `versions/<version>/`, the link `current` to one of them, and `upgrade.json`, which says whether
 * the current one is on trial and what has failed. Each change is one rename; after a crash in between the supervisor goes on from
 * what the file says. Only the agent that is about to end and the supervisor write, one after the other.
 */
export class InstallFolder {
  readonly dir: string;
  readonly #clock: Clock;

  constructor(dir: string, clock: Clock) {
    this.dir = dir;
    this.#clock = clock;
  }

  /** Made where it is missing, and rid of what an interrupted unpacking left. */
  async prepare(): Promise<void> {
    await mkdir(this.path('versions'), { recursive: true, mode: 0o755 });
    for (const name of await readdir(this.path('versions')))
      if (name.startsWith('.unpack-')) await rm(this.path('versions', name), { recursive: true, force: true });
  }

  path(...parts: string[]): string {
    return join(this.dir, ...parts);
  }

  /** A state that is missing or unreadable is an empty one. */
  async read(): Promise<InstallState> {
    try {
      const state = JSON.parse(await readFile(this.path('upgrade.json'), 'utf8')) as Partial<InstallState> | null;
      return { ...(state?.trial && isTrial(state.trial) && { trial: state.trial }), failures: state?.failures ?? {} };
    } catch (error) {
      if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === 'ENOENT') return { failures: {} };
      throw error;
    }
  }

  /** The version that the link names; null where there is none. */
  async current(): Promise<string | null> {
    const target = await readlink(this.path('current')).catch(() => null);
    const version = target === null ? null : basename(target);
    return version !== null && RELEASE_VERSION.test(version) ? version : null;
  }

  /**
   * The script to start a version by: the one module of a single-file package, or what `bin.errand` of its package.json names, at the
   * top or in its only folder. @throws AppError invalid_request where there is none
   */
  async entryOf(version: string): Promise<string> {
    return entryIn(this.path('versions', version));
  }

  /** Makes an unpacked folder the one of this version. */
  async adopt(unpacked: string, version: string): Promise<void> {
    if ((await this.current()) === version) throw new AppError('conflict', `version ${version} is the one that runs`);
    await rm(this.path('versions', version), { recursive: true, force: true });
    await rename(unpacked, this.path('versions', version));
  }

  /** From here on the supervisor starts this version. */
  async beginTrial(offer: Pick<ReleaseOffer, 'version' | 'sha256'>): Promise<void> {
    const state = await this.read();
    const trial = { version: offer.version, sha256: offer.sha256, from: await this.current() };
    await this.#write({ ...state, trial });
    await this.point(trial.version);
  }

  /** Before each start of a version on trial; answers how many there were with this one. Written first: it may take the machine down. */
  async countStart(trial: Trial): Promise<number> {
    return (await this.#failed(trial, undefined, 1)).tries;
  }

  /** The start was ended by a stop of the machine or the supervisor: it says nothing about the version. */
  async uncountStart(trial: Trial): Promise<void> {
    await this.#failed(trial, undefined, -1);
  }

  /** The version works. What is neither it nor its predecessor is removed. */
  async passTrial(trial: Trial): Promise<void> {
    const { failures } = await this.read();
    const { [trial.sha256]: _passed, ...others } = failures;
    await this.#write({ failures: others });
    for (const name of await readdir(this.path('versions'))) {
      if (name === trial.version || name === trial.from) continue;
      // What cannot be removed is only in the way of nobody.
      await rm(this.path('versions', name), { recursive: true, force: true }).catch(() => undefined);
    }
  }

  /** Back to what ran before. The version may be tried again unless that has happened `MAX_TRIES` times. */
  async failTrial(trial: Trial, reason: string): Promise<Failure> {
    await this.point(trial.from);
    const failure = await this.#failed(trial, reason, 0);
    await rm(this.path('versions', trial.version), { recursive: true, force: true });
    return failure;
  }

  /** The package is of no use: it does not hold what was promised, or cannot be unpacked. Counts as a try. */
  async packageFailed(offer: Pick<ReleaseOffer, 'version' | 'sha256'>, reason: string): Promise<Failure> {
    return this.#failed(offer, reason, 1);
  }

  /** Lets the link name this version; null takes it away. */
  async point(version: string | null): Promise<void> {
    const link = this.path('current');
    if (version === null) return rm(link, { force: true });
    if ((await this.current()) === version) return;
    const draft = this.path('current.new');
    await rm(draft, { force: true });
    // Windows links folders by full paths only.
    const target = process.platform === 'win32' ? this.path('versions', version) : join('versions', version);
    await symlink(target, draft, 'junction');
    if (process.platform === 'win32') await rm(link, { force: true });
    await rename(draft, link);
  }

  /** Changes the count of tries; with a reason the trial is over, too. */
  async #failed(
    { version, sha256 }: Pick<ReleaseOffer, 'version' | 'sha256'>,
    reason: string | undefined,
    change: 1 | 0 | -1,
  ): Promise<Failure> {
    const state = await this.read();
    const before = state.failures[sha256];
    const tries = Math.max(0, (before?.tries ?? 0) + change);
    const told = reason ?? before?.reason;
    const isBad = reason !== undefined && tries >= MAX_TRIES;
    const failure: Failure = {
      version,
      tries,
      at: this.#clock.now(),
      ...(told !== undefined && { reason: told.slice(0, 400) }),
      ...(isBad && { isBad }),
    };
    const { [sha256]: _before, ...others } = state.failures;
    const failures = Object.fromEntries([...Object.entries(others), [sha256, failure] as const].slice(-MAX_FAILURES));
    await this.#write(reason === undefined && state.trial ? { trial: state.trial, failures } : { failures });
    return failure;
  }

  async #write(state: InstallState): Promise<void> {
    await replaceFile(this.path('upgrade.json'), `${JSON.stringify(state, null, 2)}\n`);
  }
}

/** The script of an unpacked package. @throws AppError invalid_request where there is none */
export async function entryIn(dir: string): Promise<string> {
  const single = join(dir, SINGLE_FILE);
  if (await isFile(single)) return single;
  const names: string[] = await readdir(dir).catch(() => []);
  const top = names.includes('package.json') || names.length !== 1 ? dir : join(dir, names[0]!);
  const script = await binIn(top);
  if (script !== undefined && (await isFile(join(top, script)))) return join(top, script);
  throw new AppError('invalid_request', 'the package is refused: it has no package.json whose `bin` names errand');
}

async function binIn(dir: string): Promise<string | undefined> {
  try {
    const { bin } = JSON.parse(await readFile(join(dir, 'package.json'), 'utf8')) as { bin?: unknown };
    const script = typeof bin === 'string' ? bin : (bin as { errand?: unknown } | undefined)?.errand;
    return typeof script === 'string' && !script.split(/[\\/]/).includes('..') ? script : undefined;
  } catch {
    return undefined;
  }
}

async function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isFile(),
    () => false,
  );
}

function isTrial(value: Partial<Trial>): boolean {
  const isVersion = (text: unknown) => typeof text === 'string' && RELEASE_VERSION.test(text);
  return isVersion(value.version) && typeof value.sha256 === 'string' && (value.from === null || isVersion(value.from));
}

/** Whether there is a version to go back to or on with. */
export async function hasVersion(install: InstallFolder, version: string): Promise<boolean> {
  return lstat(install.path('versions', version)).then(
    () => true,
    () => false,
  );
}
