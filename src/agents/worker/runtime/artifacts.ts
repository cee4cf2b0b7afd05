import { createHash } from 'node:crypto';
import type { Dirent } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { lstat, readdir, realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type BackoffPolicy, backoffMs } from '../../../backoff.ts';
import { messageOf } from '../../../errors.ts';
import { ARTIFACT_LIMITS, type ArtifactAnswer, isArtifactName } from '../../artifact-protocol.ts';
import { CallFailed, type GatewayClient } from '../client.ts';
import { openPlain } from './run-folder.ts';
import type { Job } from './runtime.ts';

/** A file that a program left in ERRAND_ARTIFACTS. */
export interface FoundArtifact {
  path: string;
  /** Relative to that folder, with `/`. */
  name: string;
}

const MAX_DEPTH = 8;
const MAX_SHOWN = 10;

/**
 * The plain files of a folder and of those in it. Links are never followed: they could point at anything that the agent may read.
 * @returns what was left out in `complaints`, one sentence each
 */
export async function findArtifacts(folder: string): Promise<{ files: FoundArtifact[]; complaints: string[] }> {
  const walk: Walk = { files: [], complaints: [], left: 0 };
  if (await isWhereItWas(folder)) await look(folder, '', walk, 0);
  if (walk.left > 0) {
    walk.complaints.push(`${walk.left} more files in ERRAND_ARTIFACTS were left out: at most ${ARTIFACT_LIMITS.files}`);
  }
  return { files: walk.files, complaints: walk.complaints };
}

/** The program may have put a link in its place, or in that of the run's whole folder. */
async function isWhereItWas(folder: string): Promise<boolean> {
  if ((await lstat(folder).catch(() => undefined))?.isDirectory() !== true) return false;
  const root = dirname(folder);
  return (await realpath(folder)) === join(await realpath(dirname(root)), basename(root), basename(folder));
}

interface Walk {
  files: FoundArtifact[];
  complaints: string[];
  left: number;
}

async function look(folder: string, prefix: string, walk: Walk, depth: number): Promise<void> {
  const entries = (await readdir(folder, { withFileTypes: true })).sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const entry of entries) {
    const name = prefix + entry.name;
    const fault = faultOf(entry, name, depth);
    if (fault !== undefined) complain(walk, fault);
    else if (entry.isDirectory()) await look(join(folder, entry.name), `${name}/`, walk, depth + 1);
    else if (walk.files.length < ARTIFACT_LIMITS.files) walk.files.push({ path: join(folder, entry.name), name });
    else walk.left += 1;
  }
}

function faultOf(entry: Dirent, name: string, depth: number): string | undefined {
  if (!isArtifactName(name)) return 'a file in ERRAND_ARTIFACTS was left out: its name cannot be used';
  const shown = `ERRAND_ARTIFACTS: ${name} was left out`;
  if (entry.isSymbolicLink()) return `${shown}: it is a link`;
  if (entry.isDirectory())
    return depth < MAX_DEPTH ? undefined : `${shown}: it lies more than ${MAX_DEPTH} folders deep`;
  return entry.isFile() ? undefined : `${shown}: it is no plain file`;
}

function complain(walk: Walk, sentence: string): void {
  if (walk.complaints.length < MAX_SHOWN) walk.complaints.push(sentence);
}

export interface ArtifactSenderOptions {
  client: Pick<GatewayClient, 'post'>;
  /** `"agentId":…,"instanceId":…`, the head of every body. */
  caller: string;
  /** How long the end of a run waits for its files, milliseconds; default two minutes. */
  limitMs?: number;
  backoff?: BackoffPolicy;
}

const LIMIT_MS = 120_000;
const BACKOFF: BackoffPolicy = { baseMs: 500, factor: 2, capMs: 10_000, jitter: 0.5 };

/** Brings the files of runs to the gateway, in pieces; a piece that fails is sent again until the time for it is over. */
export class ArtifactSender {
  readonly #options: ArtifactSenderOptions;

  constructor(options: ArtifactSenderOptions) {
    this.#options = options;
  }

  /** Answers what did not get there, one sentence each. Never throws. */
  async send(job: Job, files: readonly FoundArtifact[]): Promise<string[]> {
    const over = AbortSignal.any([
      AbortSignal.timeout(this.#options.limitMs ?? LIMIT_MS),
      job.hurry,
      unwanted(job.signal),
    ]);
    const complaints: string[] = [];
    let room: number = ARTIFACT_LIMITS.runBytes;
    for (const { path, name } of files) {
      const shown = job.masking.text(name);
      const outcome = await this.#sendFile(job, path, shown, { room, over }).catch((error: unknown) =>
        over.aborted ? 'it could not be brought to the gateway in time' : messageOf(error),
      );
      if (typeof outcome === 'number') room -= outcome;
      else complaints.push(`ERRAND_ARTIFACTS: ${shown} was left out: ${outcome}`);
    }
    return complaints;
  }

  /** Its bytes, or why it was not sent. */
  async #sendFile(job: Job, path: string, name: string, bounds: Bounds): Promise<number | string> {
    const file = await openPlain(path);
    if (!file) return 'it is no plain file, or may not be read';
    try {
      const { size } = await file.stat();
      if (size > ARTIFACT_LIMITS.fileBytes) return `it is larger than ${ARTIFACT_LIMITS.fileBytes / 1024 ** 2} MiB`;
      if (size > bounds.room)
        return `the files of a run have at most ${ARTIFACT_LIMITS.runBytes / 1024 ** 2} MiB together`;
      const sha256 = await digestOf(file, size);
      const { runId, leaseToken } = job.assignment;
      const head = { runId, leaseToken, name, bytes: size, sha256 };
      return (await this.#sendPieces(file, head, bounds.over)) ?? size;
    } finally {
      await file.close();
    }
  }

  /** Why the gateway does not want it; undefined once it is stored. */
  async #sendPieces(file: FileHandle, head: { bytes: number }, over: AbortSignal): Promise<string | undefined> {
    let offset = 0;
    let rounds = 0;
    for (;;) {
      const data = await pieceAt(file, offset, head.bytes);
      const answer = await this.#post({ ...head, offset, data: data.toString('base64') }, over);
      if (answer.answer === 'stored') return undefined;
      if (answer.answer !== 'more') return answer.reason;
      // A gateway that never gets on would be asked for ever.
      rounds = answer.offset > offset ? 0 : rounds + 1;
      if (rounds > MAX_ROUNDS) return 'the gateway does not take it in';
      offset = answer.offset;
    }
  }

  async #post(piece: object, over: AbortSignal): Promise<ArtifactAnswer> {
    const { client, caller, backoff = BACKOFF } = this.#options;
    const body = `{${caller},${JSON.stringify(piece).slice(1)}`;
    for (let failures = 1; ; failures += 1) {
      try {
        return await client.post<ArtifactAnswer>('/api/agent/artifacts', body, { signal: over });
      } catch (error) {
        over.throwIfAborted();
        const isPassing = error instanceof CallFailed && (error.verdict === 'again' || error.verdict === 'unknown');
        if (!isPassing) throw error;
        await delay(Math.max(backoffMs(backoff, failures), error.retryAfterMs ?? 0), undefined, { signal: over });
      }
    }
  }
}

/** Aborted once nobody wants the files any more: a run that timed out, or whose agent stops, still brings home what it has. */
function unwanted(signal: AbortSignal): AbortSignal {
  const controller = new AbortController();
  const look = () => {
    if (signal.reason === 'cancel' || signal.reason === 'lost') controller.abort();
  };
  if (signal.aborted) look();
  else signal.addEventListener('abort', look, { once: true });
  return controller.signal;
}

interface Bounds {
  room: number;
  over: AbortSignal;
}

const MAX_ROUNDS = 3;

/** @throws RangeError where the file has become shorter: somebody still writes to it */
async function pieceAt(file: FileHandle, offset: number, total: number): Promise<Buffer> {
  const wanted = Math.min(ARTIFACT_LIMITS.pieceBytes, total - offset);
  const piece = Buffer.alloc(wanted);
  let have = 0;
  while (have < wanted) {
    const { bytesRead } = await file.read(piece, have, wanted - have, offset + have);
    if (bytesRead === 0) throw new RangeError('it changed while it was read');
    have += bytesRead;
  }
  return piece;
}

async function digestOf(file: FileHandle, total: number): Promise<string> {
  const hash = createHash('sha256');
  for (let offset = 0; offset < total; offset += ARTIFACT_LIMITS.pieceBytes)
    hash.update(await pieceAt(file, offset, total));
  return hash.digest('hex');
}
