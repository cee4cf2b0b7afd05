import { createHash } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';

/** Where artifacts lie. Every name in here is made by the gateway: nothing that an agent or a program says becomes a path. */
export interface ArtifactFolder {
  /** Bytes of an upload that are here. */
  sizeOf(upload: Upload): Promise<number>;
  /** Adds bytes at the end. */
  append(upload: Upload, data: Buffer): Promise<void>;
  discard(upload: Upload): Promise<void>;
  /** Whether the bytes are the ones that were promised; read from the disk. */
  isWhole(upload: Upload): Promise<boolean>;
  /** On disk under this name for good. */
  keep(upload: Upload, file: string): Promise<void>;
  remove(file: string): Promise<void>;
  read(file: string): Promise<Readable>;
  /** Kept files and unfinished uploads that were last written before this moment, epoch milliseconds. */
  olderThan(at: number): Promise<{ files: string[]; uploads: string[] }>;
  removeUpload(name: string): Promise<void>;
}

/** One at a time for each run. */
export interface Upload {
  runId: number;
  /** 64 hex digits. */
  sha256: string;
}

/** A kept file's name. */
export const FILE_NAME = /^[0-9a-f]{32}$/;

/** @param folder made when it is first needed, for our own user only */
export function artifactFolder(folder: string): ArtifactFolder {
  const kept = join(folder, 'kept');
  const incoming = join(folder, 'incoming');
  const keptPath = (file: string) => join(kept, checked(file));
  const uploadPath = (upload: Upload) => join(incoming, uploadName(upload));
  return {
    sizeOf: async (upload) => (await stat(uploadPath(upload)).catch(noFile))?.size ?? 0,
    async append(upload, data) {
      await mkdir(incoming, { recursive: true, mode: 0o700 });
      await dropOthers(incoming, upload);
      const file = await open(uploadPath(upload), 'a', 0o600);
      try {
        await file.writeFile(data);
      } finally {
        await file.close();
      }
    },
    discard: (upload) => rm(uploadPath(upload), { force: true }),
    isWhole: async (upload) => (await digestOf(uploadPath(upload))) === upload.sha256,
    async keep(upload, name) {
      await mkdir(kept, { recursive: true, mode: 0o700 });
      const file = await open(uploadPath(upload), constants.O_RDWR);
      await file.sync().finally(() => file.close());
      await rename(uploadPath(upload), keptPath(name));
      await syncFolder(kept);
    },
    remove: (file) => rm(keptPath(file), { force: true }),
    async read(name) {
      const file = await open(keptPath(name), constants.O_RDONLY | constants.O_NOFOLLOW);
      return file.createReadStream();
    },
    olderThan: async (at) => ({ files: await namesBefore(kept, at), uploads: await namesBefore(incoming, at) }),
    removeUpload: (name) => rm(join(incoming, name), { force: true }),
  };
}

function uploadName({ runId, sha256 }: Upload): string {
  if (!Number.isSafeInteger(runId) || !/^[0-9a-f]{64}$/.test(sha256)) throw new RangeError('this is no upload');
  return `${runId}-${sha256}`;
}

function checked(file: string): string {
  if (!FILE_NAME.test(file)) throw new RangeError('this is no name of a kept file');
  return file;
}

/** What the run began before and never ended: an agent cannot fill the disk with beginnings. */
async function dropOthers(incoming: string, upload: Upload): Promise<void> {
  const own = uploadName(upload);
  const others = (await readdir(incoming)).filter((name) => name.startsWith(`${upload.runId}-`) && name !== own);
  await Promise.all(others.map((name) => rm(join(incoming, name), { force: true })));
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

/** The name itself must survive a power cut, too. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY);
  await folder.sync().finally(() => folder.close());
}

async function namesBefore(folder: string, at: number): Promise<string[]> {
  const names = await readdir(folder).catch(() => []);
  const found = await Promise.all(
    names.map(async (name) => {
      const mtimeMs = (await stat(join(folder, name)).catch(noFile))?.mtimeMs;
      return mtimeMs !== undefined && mtimeMs < at ? [name] : [];
    }),
  );
  return found.flat();
}

function noFile(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
