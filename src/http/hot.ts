import type { IncomingMessage, ServerResponse } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { z } from 'zod';
import { AppError } from '../errors.ts';
import type { Log } from '../log.ts';
import { problemHeaders, problemOf, toAppError } from './problem.ts';

/** A route on the hot path: it skips the framework, not the checks. */
export interface HotRoute {
  /** Bytes; larger bodies are refused before they are read. */
  readonly bodyLimit: number;
  /** Called before the body is read, so that strangers cannot make the gateway read one. */
  authorize(request: IncomingMessage): Promise<unknown>;
  answer(identity: never, body: unknown, caller: Caller): Promise<HotAnswer>;
  /** Its answers let those go first that the same transaction has brought about: an agent gets its task before the sender is told. */
  readonly givesWay: boolean;
}

/** Whoever waits for the answer. */
export interface Caller {
  /** Fires when it hangs up. Made when it is asked for: most answers are there before anybody could. */
  readonly gone: AbortSignal;
}

export interface HotAnswer {
  readonly status: number;
  readonly body: unknown;
}

/** Types the identity that `authorize` hands to `answer`. */
export function hotRoute<I, B>(route: {
  bodyLimit: number;
  givesWay?: boolean;
  authorize(request: IncomingMessage): Promise<I>;
  schema: z.ZodType<B>;
  /** Recognises the common bodies, which need not go through the schema; undefined for all others. */
  quick?(body: unknown): B | undefined;
  answer(identity: I, body: B, caller: Caller): Promise<HotAnswer>;
}): HotRoute {
  return {
    bodyLimit: route.bodyLimit,
    givesWay: route.givesWay ?? false,
    authorize: (request) => route.authorize(request),
    answer: (identity, body, caller) =>
      route.answer(identity as I, route.quick?.(body) ?? parseWith(route.schema, body), caller),
  };
}

/** @throws AppError invalid_request naming the first wrong field. */
export function parseWith<B>(schema: z.ZodType<B>, body: unknown): B {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  const field = fieldPath(issue.path);
  throw new AppError('invalid_request', field === '' ? issue.message : `${field}: ${issue.message}`, {
    field: field || 'body',
  });
}

/**
 * Refuses a key that names what every object has: the schemas would drop it without a word. Answers nothing, so that it can stand
 * behind `quick`. @throws AppError invalid_request naming the place
 */
export function refusePrototypeKeys(body: unknown, path: readonly PropertyKey[] = []): undefined {
  if (typeof body !== 'object' || body === null) return;
  for (const [key, value] of Object.entries(body)) {
    const place = [...path, Array.isArray(body) ? Number(key) : key];
    const field = fieldPath(place);
    if (key === '__proto__') throw new AppError('invalid_request', `${field}: is not allowed as a name`, { field });
    refusePrototypeKeys(value, place);
  }
}

/** `[3].args.room` */
export function fieldPath(path: readonly PropertyKey[]): string {
  return path.reduce<string>(
    (text, part) =>
      typeof part === 'number' ? `${text}[${part}]` : text === '' ? String(part) : `${text}.${String(part)}`,
    '',
  );
}

export class HotRoutes {
  readonly #routes: ReadonlyMap<string, HotRoute>;
  readonly #log: Log;
  #stopping = false;

  /** @param routes by `POST /path` */
  constructor(routes: ReadonlyMap<string, HotRoute>, log: Log) {
    this.#routes = routes;
    this.#log = log;
  }

  /** True where the request was one of ours (and is being answered). */
  serve(request: IncomingMessage, response: ServerResponse): boolean {
    const route = this.#routes.get(`${request.method} ${request.url}`);
    if (!route) return false;
    void this.#serve(route, request, response);
    return true;
  }

  /** From now on answers end their connections. */
  stop(): void {
    this.#stopping = true;
  }

  async #serve(route: HotRoute, request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const identity = await route.authorize(request);
      const body = await readJson(request, route.bodyLimit);
      const { status, body: answer } = await route.answer(identity as never, body, callerOf(response));
      if (route.givesWay) await nextTurn();
      this.#send(response, status, JSON_TYPE, answer);
    } catch (thrown) {
      const error = toAppError(thrown, this.#log);
      // An unread body would be taken for the next request on this connection.
      if (!request.complete) response.setHeader('connection', 'close');
      this.#send(response, error.status, problemHeaders(error), problemOf(error));
    }
  }

  #send(response: ServerResponse, status: number, headers: Readonly<Record<string, string>>, body: unknown): void {
    if (response.destroyed || response.headersSent) return;
    const text = JSON.stringify(body);
    if (this.#stopping) response.setHeader('connection', 'close');
    response.writeHead(status, { ...headers, 'content-length': Buffer.byteLength(text) });
    response.end(text);
  }
}

const JSON_TYPE = { 'content-type': 'application/json' };

function callerOf(response: ServerResponse): Caller {
  let controller: AbortController | undefined;
  return {
    get gone() {
      if (!controller) {
        const made = new AbortController();
        controller = made;
        const hungUp = () => {
          if (!response.writableFinished) made.abort();
        };
        if (response.destroyed) hungUp();
        else response.once('close', hungUp);
      }
      return controller.signal;
    },
  };
}

function readJson(request: IncomingMessage, limit: number): Promise<unknown> {
  const announced = Number(request.headers['content-length'] ?? 0);
  if (announced > limit) return Promise.reject(tooLarge(limit));
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    request.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > limit) {
        request.pause();
        reject(tooLarge(limit));
      } else chunks.push(chunk);
    });
    request.on('end', () => {
      try {
        resolve(JSON.parse(chunks.length === 1 ? chunks[0]!.toString() : Buffer.concat(chunks).toString()));
      } catch {
        reject(new AppError('invalid_request', 'the body is not valid JSON', { field: 'body' }));
      }
    });
    request.on('error', reject);
  });
}

function tooLarge(limit: number): AppError {
  return new AppError('too_large', `the body is larger than ${limit} bytes`, { field: 'body' });
}
