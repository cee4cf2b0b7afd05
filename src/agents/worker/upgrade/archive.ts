import { createReadStream } from 'node:fs';
import { type FileHandle, mkdir, open } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { createGunzip } from 'node:zlib';
import { AppError, messageOf } from '../../../errors.ts';
import { ByteReader } from './byte-reader.ts';
import { type TarEntry, tarEntries } from './tar.ts';

/** Bounds of what a package may become on disk. */
export interface ArchiveLimits {
  files: number;
  bytes: number;
}

export const ARCHIVE_LIMITS: ArchiveLimits = { files: 50_000, bytes: 2 * 1024 ** 3 };

/** What a package that is one file becomes. */
export const SINGLE_FILE = 'main.mjs';

/**
 * Unpacks a package into a folder that does not exist yet: a gzipped tar of files and folders, or else one JavaScript module. Nothing
 * is written outside of the folder: names that lead out of it, links and devices are refused, and nothing is written twice.
 * @throws AppError invalid_request saying what is wrong with the package
 */
export async function unpack(file: string, dir: string, limits: ArchiveLimits = ARCHIVE_LIMITS): Promise<void> {
  await mkdir(dir, { recursive: true, mode: 0o755 });
  const target: Target = { limits, dir, files: 0, bytes: 0 };
  if (!(await isGzip(file))) return writeFile(target, SINGLE_FILE, createReadStream(file), false);
  const source = createReadStream(file);
  const gunzip = createGunzip();
  source.on('error', (error) => gunzip.destroy(error));
  try {
    for await (const entry of tarEntries(new ByteReader(source.pipe(gunzip)))) await place(target, entry);
  } catch (error) {
    if (error instanceof AppError || isDiskError(error)) throw error;
    throw new AppError('invalid_request', `the package cannot be unpacked: ${messageOf(error)}`, { cause: error });
  } finally {
    source.destroy();
    gunzip.destroy();
  }
}

interface Target {
  readonly dir: string;
  readonly limits: ArchiveLimits;
  files: number;
  bytes: number;
}

async function isGzip(file: string): Promise<boolean> {
  const handle = await open(file, 'r');
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(2), 0, 2, 0);
    return bytesRead === 2 && buffer[0] === 0x1f && buffer[1] === 0x8b;
  } finally {
    await handle.close();
  }
}

async function place(target: Target, entry: TarEntry): Promise<void> {
  const name = safeName(entry.name);
  target.files += 1;
  if (target.files > target.limits.files) throw refused(`it holds more than ${target.limits.files} files`);
  if (entry.kind === 'other')
    throw refused(`${JSON.stringify(name)} is a link or a device; only files and folders are taken`);
  if (name === '') return;
  if (entry.kind === 'folder') await mkdir(join(target.dir, name), { recursive: true, mode: 0o755 });
  else await writeFile(target, name, entry.content, entry.isExecutable);
}

/** A name that stays inside; without empty parts, so that one place has one name. @throws AppError */
function safeName(name: string): string {
  const parts = name.split('/');
  const isBad = name.startsWith('/') || /[\\:\0]/.test(name) || parts.includes('..') || name.length > 1_024;
  if (isBad) throw refused(`the name ${JSON.stringify(name.slice(0, 200))} leads out of the package`);
  return parts.filter((part) => part !== '' && part !== '.').join('/');
}

/** On disk when this resolves: the folder is made the current one soon after. */
async function writeFile(
  target: Target,
  name: string,
  content: AsyncIterable<Buffer>,
  isExecutable: boolean,
): Promise<void> {
  const path = join(target.dir, name);
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  const file = await openNew(path, name, isExecutable);
  try {
    for await (const chunk of content) {
      target.bytes += chunk.length;
      if (target.bytes > target.limits.bytes) throw refused(`it is larger than ${target.limits.bytes} bytes`);
      await file.writeFile(chunk);
    }
    await file.datasync();
  } finally {
    await file.close();
  }
}

async function openNew(path: string, name: string, isExecutable: boolean): Promise<FileHandle> {
  try {
    return await open(path, 'wx', isExecutable ? 0o755 : 0o644);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw refused(`${JSON.stringify(name)} is in it twice`);
    throw error;
  }
}

function refused(what: string): AppError {
  return new AppError('invalid_request', `the package is refused: ${what}`);
}

/** A full disk says nothing about the package. */
function isDiskError(error: unknown): boolean {
  return ['ENOSPC', 'EDQUOT', 'EIO', 'EACCES', 'EROFS', 'EMFILE'].includes((error as NodeJS.ErrnoException).code ?? '');
}
