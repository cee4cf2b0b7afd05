import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AppError, ERROR_CODES, messageOf } from '../../errors.ts';
import { randomToken, sameSecret, sha256 } from '../../ids.ts';
import type { Log } from '../../log.ts';
import type { Service } from '../../service.ts';
import { EFFECT_LIMITS, type EffectVerb, effectCallSchemas, type ProblemJson } from '../protocol.ts';
import type { EffectsForwarder } from './effects-forwarder.ts';
import type { Masking } from './masking.ts';
import { clip } from './runtime/capture.ts';

/** A run that may knock. */
export interface DoorRun {
  runId: string;
  leaseToken: string;
  masking: Masking;
}

/** What a run's program needs to reach its agent, and how the run leaves. */
export interface Admission {
  env: Record<string, string>;
  leave(): void;
}

export interface EffectsDoorOptions {
  /** Holds the socket; programs run below it. */
  dir: string;
  /** Distinguishes agents that share that folder. */
  name: string;
  forwarder: EffectsForwarder;
  log: Log;
}

/** A socket's path must fit into 104 bytes on macOS, 108 on Linux, its end included. */
const MAX_SOCKET_BYTES = 100;
const MAX_BODY_BYTES = 256 * 1024;
const VERBS = /^\/effects\/(begin|done|fail)$/;

/**
 * The agent's door for the programs it runs: HTTP on a local socket that only the agent's own user may open. A program shows the
 * random key of its run, so that no program speaks for another run; it never learns the agent's token.
 */
export class EffectsDoor implements Service {
  readonly #options: EffectsDoorOptions;
  readonly #runs = new Map<string, { run: DoorRun; key: string }>();
  #server: Server | undefined;
  #path: string | undefined;
  #ownFolder: string | undefined;

  constructor(options: EffectsDoorOptions) {
    this.#options = options;
  }

  /** Without a door tasks still run; a program that needs it is told that there is none. */
  async start(): Promise<void> {
    try {
      const path = await this.#place();
      const server = createServer((request, response) => void this.#serve(request, response));
      await listen(server, path);
      this.#server = server;
      this.#path = path;
      if (process.platform !== 'win32') await chmod(path, 0o600);
    } catch (error) {
      this.#options.log.error('effects.no_door', {
        error: messageOf(error),
        advice: 'programs of this agent cannot use `errand effect`',
      });
    }
  }

  async stop(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server) {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    }
    if (this.#ownFolder !== undefined) await rm(this.#ownFolder, { recursive: true, force: true });
  }

  /** Lets a run in until it leaves; its variables are empty where there is no door. */
  admit(run: DoorRun): Admission {
    if (this.#server === undefined) return { env: {}, leave: () => undefined };
    const key = randomToken(24);
    this.#runs.set(run.runId, { run, key });
    return {
      env: { ERRAND_AGENT_SOCKET: this.#path!, ERRAND_RUN_KEY: key },
      leave: () => void this.#runs.delete(run.runId),
    };
  }

  /** A name that is free: what a killed agent of the same name has left is removed. */
  async #place(): Promise<string> {
    const name = `effects-${sha256(this.#options.name).slice(0, 12)}`;
    if (process.platform === 'win32') return `\\\\.\\pipe\\errand-${name}-${randomToken(9)}`;
    const path = join(this.#options.dir, `${name}.sock`);
    await rm(path, { force: true });
    if (Buffer.byteLength(path) <= MAX_SOCKET_BYTES) return path;
    this.#ownFolder = await mkdtemp(join(tmpdir(), 'errand-'));
    return join(this.#ownFolder, `${name}.sock`);
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    try {
      const run = this.#callerOf(request);
      const verb = VERBS.exec(request.url ?? '')?.[1] as EffectVerb | undefined;
      if (request.method !== 'POST' || verb === undefined)
        throw new AppError('not_found', 'there is only POST /effects/begin, done and fail');
      const { patienceMs, ...body } = await readJson(request);
      const call = masked(checked(verb, body), run.masking);
      const answer = await this.#options.forwarder.forward(verb, run, call, patienceOf(patienceMs), gone.signal);
      send(response, 200, answer);
    } catch (error) {
      if (!gone.signal.aborted) this.#refuse(response, error);
    }
  }

  /** The comparison takes the same time for every key; a run id is no secret. @throws AppError unauthorized */
  #callerOf({ headers }: IncomingMessage): DoorRun {
    const found = this.#runs.get(String(headers['x-errand-run'] ?? ''));
    const key = /^Bearer (\S+)$/.exec(headers.authorization ?? '')?.[1] ?? '';
    if (sameSecret(key, found?.key ?? '') && found) return found.run;
    throw new AppError('unauthorized', 'this is not the key of a run that is under way here');
  }

  #refuse(response: ServerResponse, error: unknown): void {
    const known = error instanceof AppError ? error : new AppError('internal', 'the agent could not do this');
    if (known !== error) this.#options.log.error('effects.fault', { error: messageOf(error) });
    const problem: ProblemJson = {
      type: `urn:errand:error:${known.code}`,
      title: ERROR_CODES[known.code].title,
      status: known.status,
      code: known.code,
      detail: known.message,
      ...(known.field === undefined ? {} : { field: known.field }),
    };
    send(response, known.status, problem);
  }
}

type Call = Record<string, unknown> & { type: string; key: string };

/** How long the program wants to wait while the gateway is away or another run is at it, milliseconds. */
const DEFAULT_PATIENCE_MS = 60_000;
const MAX_PATIENCE_MS = 86_400_000;

/** @throws AppError invalid_request */
function patienceOf(value: unknown): number {
  if (value === undefined) return DEFAULT_PATIENCE_MS;
  if (typeof value === 'number' && value >= 0 && value <= MAX_PATIENCE_MS) return value;
  throw new AppError('invalid_request', 'patienceMs: must be milliseconds, at most a day', { field: 'patienceMs' });
}

/** @throws AppError invalid_request naming the field */
function checked(verb: EffectVerb, body: unknown): Call {
  const parsed = effectCallSchemas[verb].safeParse(body);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  const field = issue.path.join('.') || 'body';
  throw new AppError('invalid_request', `${field}: ${issue.message}`, { field });
}

/**
 * Secrets do not leave the machine. In what names an effect they are refused: masked, two effects would become one.
 * @throws AppError invalid_request
 */
function masked(call: Call, masking: Masking): Call {
  for (const field of ['type', 'key', 'digest']) {
    const value = call[field];
    if (typeof value === 'string' && masking.text(value) !== value)
      throw new AppError('invalid_request', `${field}: holds a secret of this task; use a digest of it`, { field });
  }
  const text = (field: 'result' | 'error') =>
    typeof call[field] === 'string' ? { [field]: clip(masking.text(call[field]), EFFECT_LIMITS[field]) } : {};
  return { ...call, ...text('result'), ...text('error') };
}

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

/** @throws AppError invalid_request, too_large */
async function readJson(request: IncomingMessage): Promise<Record<string, unknown>> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) throw new AppError('too_large', `the body is larger than ${MAX_BODY_BYTES} bytes`);
    chunks.push(chunk);
  }
  try {
    const value: unknown = JSON.parse(Buffer.concat(chunks).toString());
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value };
  } catch {
    // Told below.
  }
  throw new AppError('invalid_request', 'the body is not a JSON object', { field: 'body' });
}

function send(response: ServerResponse, status: number, body: unknown): void {
  if (response.destroyed || response.headersSent) return;
  const text = JSON.stringify(body);
  const type = status < 400 ? 'application/json' : 'application/problem+json';
  response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(text), connection: 'close' });
  response.end(text);
}
