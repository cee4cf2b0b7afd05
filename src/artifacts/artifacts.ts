import { randomBytes } from 'node:crypto';
import type { Readable } from 'node:stream';
import { ARTIFACT_LIMITS, type ArtifactAnswer, type ArtifactRequest } from '../agents/artifact-protocol.ts';
import { AppError } from '../errors.ts';
import type { Log } from '../log.ts';
import { Poller, type Service } from '../service.ts';
import type { ArtifactTable } from '../store/artifact-tables.ts';
import type { Store } from '../store/store.ts';
import type { Verb } from '../store/tx.ts';
import { type ArtifactFolder, artifactFolder, FILE_NAME, type Upload } from './folder.ts';
import { artifactById, artifactsOfRun, artifactsOfTasks, heldRun, insertArtifacts, knownFiles } from './queries.ts';

export interface ArtifactsOptions {
  store: Store;
  log: Log;
  /** Holds the files; ours alone. */
  folder: string;
}

/** The run that brings a file; proven by its agent's token and the lease. */
export interface Bringer {
  agentId: string;
  runId: number;
  leaseToken: string;
}

/** A file as people see it. */
export interface ArtifactRecord {
  artifactId: string;
  runId: string;
  name: string;
  bytes: number;
  sha256: string;
  createdAt: number;
}

/** One piece of a file. */
export type Piece = Pick<ArtifactRequest, 'name' | 'bytes' | 'sha256' | 'offset'> & { data: Buffer };

const SWEEP_MS = 3_600_000;
/** Between the file and its row there are seconds at most; an upload that has stood still for so long is given up. */
const SETTLED_MS = 86_400_000;

/**
 * Files that runs leave in ERRAND_ARTIFACTS: taken in piece by piece, kept in the state folder, listed with their task, and removed
 * after it. The file is on disk before its row is written, and removed after its row is gone; the sweep takes what a crash in between
 * leaves.
 */
export class Artifacts implements Service {
  readonly #options: ArtifactsOptions;
  readonly #folder: ArtifactFolder;
  readonly #poller: Poller;
  /** One piece of a run at a time. */
  readonly #turns = new Map<number, Promise<unknown>>();

  constructor(options: ArtifactsOptions) {
    this.#options = options;
    this.#folder = artifactFolder(options.folder);
    this.#poller = new Poller({
      runOnce: async () => {
        await this.sweep(Date.now() - SETTLED_MS);
        return SWEEP_MS;
      },
      onError: (error) => {
        options.log.error('artifacts.sweep_failed', { error });
        return SWEEP_MS;
      },
    });
  }

  start(): Promise<void> {
    return this.#poller.start();
  }

  stop(): Promise<void> {
    return this.#poller.stop();
  }

  /** Takes in one piece, idempotently. @throws AppError storage_full */
  receive(bringer: Bringer, piece: Piece): Promise<ArtifactAnswer> {
    const before = this.#turns.get(bringer.runId) ?? Promise.resolve();
    const turn = before.catch(() => undefined).then(() => this.#receive(bringer, piece));
    this.#turns.set(bringer.runId, turn);
    return turn
      .catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOSPC' && error.code !== 'EDQUOT') throw error;
        throw new AppError('storage_full', 'the disk of the gateway is full: the file was not stored', {
          cause: error,
        });
      })
      .finally(() => {
        if (this.#turns.get(bringer.runId) === turn) this.#turns.delete(bringer.runId);
      });
  }

  /** Of each of these tasks that has any, oldest first. */
  async ofTasks(taskIds: readonly number[]): Promise<Map<number, ArtifactRecord[]>> {
    const records = new Map<number, ArtifactRecord[]>();
    if (taskIds.length === 0) return records;
    const rows = await this.#options.store.all(artifactsOfTasks, { rows: taskIds.map((id) => [id]) });
    for (const row of rows.sort((a, b) => a.id - b.id)) {
      const own = records.get(row.task_id);
      if (own) own.push(this.#record(row));
      else records.set(row.task_id, [this.#record(row)]);
    }
    return records;
  }

  /** One file with the conversation of its task; undefined where there is none (any more). The stream is to be read or destroyed. */
  async open(id: number): Promise<(ArtifactRecord & { sessionKey: string | null; body: Readable }) | undefined> {
    const [row] = await this.#options.store.all(artifactById, { id });
    if (!row) return undefined;
    const body = await this.#folder.read(row.file).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
      this.#options.log.error('artifacts.file_missing', { artifactId: this.#record(row).artifactId });
      return undefined;
    });
    return body && { ...this.#record(row), sessionKey: row.session_key, body };
  }

  /**
   * Removes files without a row and uploads that nobody goes on with, as far as they were last written before `at` (epoch milliseconds
   * of the file system). Answers how many.
   */
  async sweep(at: number): Promise<number> {
    const { files, uploads } = await this.#folder.olderThan(at);
    const names = files.filter((name) => FILE_NAME.test(name));
    const known = new Set<string>();
    for (let from = 0; from < names.length; from += 500) {
      const rows = names.slice(from, from + 500).map((name) => [name]);
      for (const { file } of await this.#options.store.all(knownFiles, { rows })) known.add(file);
    }
    const orphans = names.filter((name) => !known.has(name));
    await Promise.all(orphans.map((name) => this.#folder.remove(name)));
    await Promise.all(uploads.map((name) => this.#folder.removeUpload(name)));
    const count = orphans.length + uploads.length;
    if (count > 0) this.#options.log.info('artifacts.swept', { files: orphans.length, uploads: uploads.length });
    return count;
  }

  async #receive(bringer: Bringer, piece: Piece): Promise<ArtifactAnswer> {
    const { store } = this.#options;
    const { agentId: agent_id, runId: run_id, leaseToken: lease_token } = bringer;
    const [held] = await store.all(heldRun, { run_id, agent_id, lease_token });
    if (!held) return LEASE_LOST;
    const settled = settledAnswer(piece, await store.all(artifactsOfRun, { run_id }));
    if (settled) return settled;
    const upload: Upload = { runId: run_id, sha256: piece.sha256 };
    const size = await this.#folder.sizeOf(upload);
    if (size > piece.bytes) await this.#folder.discard(upload);
    if (size !== piece.offset) return { answer: 'more', offset: size > piece.bytes ? 0 : size };
    await this.#folder.append(upload, piece.data.subarray(0, piece.bytes - size));
    const have = size + Math.min(piece.data.length, piece.bytes - size);
    return have < piece.bytes ? { answer: 'more', offset: have } : this.#finish(bringer, piece, upload);
  }

  async #finish(bringer: Bringer, { name, bytes, sha256 }: Piece, upload: Upload): Promise<ArtifactAnswer> {
    if (!(await this.#folder.isWhole(upload))) {
      await this.#folder.discard(upload);
      return { answer: 'more', offset: 0 };
    }
    const file = randomBytes(16).toString('hex');
    await this.#folder.keep(upload, file);
    const [isStored] = await this.#options.store.write(storeArtifacts, [{ ...bringer, name, bytes, sha256, file }]);
    if (isStored) return { answer: 'stored' };
    await this.#folder.remove(file);
    return LEASE_LOST;
  }

  #record(row: ArtifactTable): ArtifactRecord {
    const { ids } = this.#options.store;
    const { name, bytes, sha256, created_at: createdAt } = row;
    return { artifactId: ids.encode(row.id), runId: ids.encode(row.run_id), name, bytes, sha256, createdAt };
  }
}

const LEASE_LOST: ArtifactAnswer = { answer: 'lease_lost', reason: 'the run is not held by this agent any more' };

interface NewArtifact extends Bringer {
  name: string;
  bytes: number;
  sha256: string;
  file: string;
}

/** Answers whether it was written: false once the run is not held any more. */
const storeArtifacts: Verb<NewArtifact, boolean> = {
  name: 'artifact.store',
  rank: 5,
  async run(tx, items) {
    const first = await tx.ids(items.length);
    const rows = items.map(({ runId, agentId, leaseToken, name, bytes, sha256, file }, index) => [
      ...[first + index, runId, agentId, leaseToken],
      ...[name, bytes, sha256, file],
    ]);
    const written = new Set((await tx.all(insertArtifacts, { rows, now: tx.now })).map(({ id }) => id));
    return items.map((_, index) => written.has(first + index));
  },
};

/** What is known of this file, or why it is not wanted. */
function settledAnswer(
  { name, bytes, sha256 }: Piece,
  stored: readonly Pick<ArtifactTable, 'name' | 'bytes' | 'sha256'>[],
): ArtifactAnswer | undefined {
  const same = stored.find((one) => one.name === name);
  if (same) {
    return same.sha256 === sha256
      ? { answer: 'stored' }
      : { answer: 'refused', reason: 'the run has another file of this name' };
  }
  if (stored.length >= ARTIFACT_LIMITS.files) {
    return { answer: 'refused', reason: `a run may have ${ARTIFACT_LIMITS.files} files` };
  }
  const total = stored.reduce((sum, one) => sum + one.bytes, bytes);
  const max = ARTIFACT_LIMITS.runBytes;
  return total > max
    ? { answer: 'refused', reason: `the files of a run may have ${max / 1024 ** 2} MiB together` }
    : undefined;
}
