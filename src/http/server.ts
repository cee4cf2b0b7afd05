import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import fastify, { type FastifyError, type FastifyInstance } from 'fastify';
import { validatorCompiler } from 'fastify-type-provider-zod';
import type { ChannelDoor } from '../channels/channel.ts';
import { AppError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { HotRoutes } from './hot.ts';
import { problemHeaders, problemOf, toAppError } from './problem.ts';
import { answerSerializer } from './serialize.ts';

export interface HttpServerOptions {
  host: string;
  /** 0: any free port. */
  port: number;
  log: Log;
  hot: HotRoutes;
  doors: readonly ChannelDoor[];
  /** Adds the other routes. */
  routes(app: FastifyInstance): Promise<void>;
}

export interface HttpServer {
  readonly address: { host: string; port: number };
  /** No new requests; running ones get `graceMs`, then their connections are cut. */
  stop(graceMs?: number): Promise<void>;
}

/** Bytes of a JSON body on ordinary routes. */
const BODY_LIMIT = 1024 * 1024;
/** Of one part of a path: session keys and effect keys are up to 512 characters, each up to 12 when it is escaped. */
const MAX_PARAM_CHARS = 6_200;
const STOP_GRACE_MS = 5_000;

/** Starts listening. @throws AppError invalid_config where the port is taken or the host is not ours. */
export async function startHttpServer(options: HttpServerOptions): Promise<HttpServer> {
  const { log, hot } = options;
  const app = fastify({
    bodyLimit: BODY_LIMIT,
    routerOptions: { maxParamLength: MAX_PARAM_CHARS },
    forceCloseConnections: true,
    serverFactory: (route) =>
      createServer(
        { keepAliveTimeout: 75_000, requestTimeout: 120_000 },
        (request: IncomingMessage, response: ServerResponse) => {
          if (!hot.serve(request, response)) route(request, response);
        },
      ),
  });
  // What programs have printed must never be taken for a page.
  app.addHook('onRequest', async (_request, reply) => void reply.header('x-content-type-options', 'nosniff'));
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(answerSerializer);
  app.setErrorHandler((error: FastifyError, _request, reply) => {
    const known = frameworkError(error) ?? toAppError(error, log);
    return reply
      .code(known.status)
      .headers(problemHeaders(known))
      .send(JSON.stringify(problemOf(known)));
  });
  app.setNotFoundHandler((request, reply) => {
    const error = new AppError('not_found', `there is no ${request.method} ${request.url.split('?')[0]}`);
    return reply
      .code(404)
      .type('application/problem+json')
      .send(JSON.stringify(problemOf(error)));
  });
  await app.register(async (scope) => addDoors(scope, options.doors));
  await options.routes(app);
  await listen(app, options);
  const { address, port } = app.server.address() as AddressInfo;
  return { address: { host: address, port }, stop: (graceMs = STOP_GRACE_MS) => stop(app, hot, graceMs) };
}

async function listen(app: FastifyInstance, { host, port }: HttpServerOptions): Promise<void> {
  try {
    await app.listen({ host, port });
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'EADDRINUSE')
      throw new AppError('invalid_config', `ERRAND_PORT: port ${port} on ${host} is in use`, {
        field: 'ERRAND_PORT',
        cause: error,
      });
    if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND' || code === 'EACCES') {
      throw new AppError('invalid_config', `ERRAND_HOST: cannot listen on ${host}:${port} (${code})`, {
        field: 'ERRAND_HOST',
        cause: error,
      });
    }
    throw error;
  }
}

async function stop(app: FastifyInstance, hot: HotRoutes, graceMs: number): Promise<void> {
  hot.stop();
  const cut = setTimeout(() => app.server.closeAllConnections(), graceMs);
  await app.close();
  clearTimeout(cut);
}

/** What the framework refuses by itself, in our words. */
function frameworkError(error: FastifyError): AppError | undefined {
  if (error.code === 'FST_ERR_CTP_BODY_TOO_LARGE')
    return new AppError('too_large', 'the body is too large', { field: 'body' });
  if (error.validation) {
    const first = error.validation[0] as { instancePath?: string; message?: string } | undefined;
    const path = (first?.instancePath ?? '').replace(/^\//, '').replaceAll('/', '.');
    const place = path === '' ? (error.validationContext ?? 'body') : path;
    return new AppError('invalid_request', `${place}: ${first?.message ?? 'is not valid'}`, { field: place });
  }
  if (error.statusCode && error.statusCode >= 400 && error.statusCode < 500) {
    return new AppError(
      'invalid_request',
      error.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE' ? 'the content type must be application/json' : error.message,
      { field: 'body' },
    );
  }
  return undefined;
}

/** The platforms' doors: raw bodies of any content type, each with its own limit, in a scope of their own. */
function addDoors(scope: FastifyInstance, doors: readonly ChannelDoor[]): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) => done(null, body));
  for (const door of doors) {
    scope.route({
      method: door.method,
      url: door.path,
      bodyLimit: door.bodyLimit,
      schema: { hide: true } as object,
      handler: async (request, reply) => {
        const answer = await door.open({
          query: request.query as Record<string, string | string[] | undefined>,
          headers: request.headers,
          body: typeof request.body === 'string' ? request.body : '',
        });
        return reply
          .code(answer.status)
          .type(answer.contentType ?? 'text/plain; charset=utf-8')
          .send(answer.body);
      },
    });
  }
}
