import { constants } from 'node:fs';
import { mkdir, open, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzip as gzipCallback } from 'node:zlib';
import type { Clock } from '../clock.ts';
import { AppError, messageOf } from '../errors.ts';

const gzip = promisify(gzipCallback);

/** Where pruned rows go. */
export interface Archive {
  /**
   * Appends these lines and resolves once they are on disk. Where it throws, nothing of the call counts as archived.
   * @throws AppError storage_full when the disk is full, unavailable when the folder cannot be written
   */
  append(lines: readonly string[]): Promise<void>;
}

export interface ArchiveOptions {
  /** Made with mode 0700 where it does not exist. */
  readonly folder: string;
  readonly clock: Clock;
}

/** The file that this process appends to: one that it began itself and whose every byte it knows to be good. */
interface OpenFile {
  readonly day: string;
  readonly path: string;
  readonly bytes: number;
}

/**
 * Compressed JSON lines by day: `<yyyy-mm-dd>.jsonl.gz` (UTC, mode 0600), each call one gzip member, fsynced before it returns. A
 * process never appends to a file that another one began: what a crash cut off stays the end of its file, and everything before it
 * readable. The next file of the day is `<yyyy-mm-dd>.1.jsonl.gz`, and so on.
 */
export function createArchive(options: ArchiveOptions): Archive {
  return new DailyArchive(options);
}

class DailyArchive implements Archive {
  readonly #options: ArchiveOptions;
  #current: OpenFile | undefined;
  /** Calls follow one another: members of one file must not mix. */
  #last: Promise<void> = Promise.resolve();

  constructor(options: ArchiveOptions) {
    this.#options = options;
  }

  append(lines: readonly string[]): Promise<void> {
    if (lines.length === 0) return Promise.resolve();
    const done = this.#last.then(() => this.#append(lines));
    this.#last = done.catch(() => undefined);
    return done;
  }

  async #append(lines: readonly string[]): Promise<void> {
    const { folder, clock } = this.#options;
    const day = new Date(clock.now()).toISOString().slice(0, 10);
    const member = await gzip(`${lines.join('\n')}\n`);
    try {
      const known = this.#current;
      const file = known?.day === day && (await isOurs(known)) ? known : await begin(folder, day);
      this.#current = undefined;
      await appendMember(file, member);
      this.#current = { ...file, bytes: file.bytes + member.length };
    } catch (error) {
      throw archiveFault(error);
    }
  }
}

const MODE = 0o600;
const NEW = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_EXCL;
/** Bounds the search for a free name; a day with so many files is a fault of its own. */
const MOST_FILES = 10_000;

async function begin(folder: string, day: string): Promise<OpenFile> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  for (let n = 0; n < MOST_FILES; n += 1) {
    const path = join(folder, `${day}${n === 0 ? '' : `.${n}`}.jsonl.gz`);
    try {
      const file = await open(path, NEW, MODE);
      await file.close();
      await syncFolder(folder);
      return { day, path, bytes: 0 };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
  throw new Error(`${folder} has ${MOST_FILES} files of ${day}`);
}

/** False where somebody else has written to it or moved it away: what we would append might be unreadable, or gone. */
async function isOurs({ path, bytes }: OpenFile): Promise<boolean> {
  return stat(path).then(
    ({ size }) => size === bytes,
    () => false,
  );
}

/** Half a member is cut off again, and a file that would be empty removed; where even that fails it is the end of its file. */
async function appendMember({ path, bytes }: OpenFile, member: Buffer): Promise<void> {
  const handle = await open(path, 'a', MODE);
  try {
    await handle.appendFile(member);
    await handle.sync();
  } catch (error) {
    await handle.truncate(bytes).catch(() => undefined);
    if (bytes === 0) await unlink(path).catch(() => undefined);
    throw error;
  } finally {
    await handle.close();
  }
}

/** The name of a new file is on disk only when its folder is. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** No room, no quota left, or the limit of a file reached. */
const FULL = new Set(['ENOSPC', 'EDQUOT', 'EFBIG']);

function archiveFault(error: unknown): AppError {
  const { code } = error as NodeJS.ErrnoException;
  if (FULL.has(code ?? ''))
    return new AppError('storage_full', 'the disk is full: nothing was archived, so nothing is pruned', {
      cause: error,
    });
  return new AppError('unavailable', `the archive cannot be written: ${messageOf(error)}`, { cause: error });
}
