import { createHash } from 'node:crypto';
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '../errors.ts';
import { randomToken } from '../ids.ts';

/** A larger package is refused: agents would not load it. */
export const MAX_PACKAGE_BYTES = 512 * 1024 ** 2;

export interface StoredPackage {
  sha256: string;
  bytes: number;
}

/** The contents of packages in a folder, named by their digest: whatever a version is called, it never becomes a path. */
export class PackageFiles {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Removes what interrupted uploads left. */
  async prepare(): Promise<void> {
    for (const name of await readdir(this.#dir).catch(() => []))
      if (name.startsWith('.upload-')) await rm(join(this.#dir, name), { force: true });
  }

  /** Stores what comes; on disk when this resolves. @throws AppError too_large, invalid_request (nothing came), storage_full */
  async store(content: AsyncIterable<Uint8Array>): Promise<StoredPackage> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    const draft = join(this.#dir, `.upload-${randomToken(9)}`);
    try {
      const stored = await writeAll(draft, content);
      await rename(draft, this.#path(stored.sha256));
      return stored;
    } catch (error) {
      await rm(draft, { force: true });
      if ((error as NodeJS.ErrnoException).code === 'ENOSPC')
        throw new AppError('storage_full', 'the disk is full: the package was not stored', { cause: error });
      throw error;
    }
  }

  /** Where the content is. @throws AppError not_found where it is gone or not whole */
  async find({ sha256, bytes }: StoredPackage): Promise<string> {
    const path = this.#path(sha256);
    const size = await stat(path).then(
      (found) => found.size,
      () => -1,
    );
    if (size !== bytes) throw new AppError('not_found', `the package ${sha256} is not in the state folder any more`);
    return path;
  }

  async remove(sha256: string): Promise<void> {
    await rm(this.#path(sha256), { force: true });
  }

  #path(sha256: string): string {
    return join(this.#dir, `${sha256}.package`);
  }
}

async function writeAll(path: string, content: AsyncIterable<Uint8Array>): Promise<StoredPackage> {
  const hash = createHash('sha256');
  let bytes = 0;
  const file = await open(path, 'wx', 0o600);
  try {
    for await (const chunk of content) {
      bytes += chunk.length;
      if (bytes > MAX_PACKAGE_BYTES)
        throw new AppError('too_large', `the package is larger than ${MAX_PACKAGE_BYTES} bytes`, { field: 'body' });
      hash.update(chunk);
      await file.writeFile(chunk);
    }
    if (bytes === 0) throw new AppError('invalid_request', 'the package is empty', { field: 'body' });
    await file.datasync();
  } finally {
    await file.close();
  }
  return { sha256: hash.digest('hex'), bytes };
}
