import { createReadStream } from 'node:fs';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { RELEASE_VERSION } from '../../agents/protocol.ts';
import { AppError } from '../../errors.ts';
import { bearerOf } from '../auth.ts';
import type { Rooms } from '../rooms.ts';
import { ACTOR, epochMs, refusals, refusalsOfChange, refusalsWithId } from './shapes.ts';

const version = z.string().max(32).regex(RELEASE_VERSION, 'must be a version such as 1.2.3 or 1.2.3-rc.1');
const params = z.object({ version });

const releaseSchema = z.object({
  version: z.string(),
  sha256: z.string(),
  signature: z.string().nullable(),
  bytes: z.number().int(),
  publishedAt: epochMs,
  publishedBy: z.string(),
  withdrawnAt: epochMs.nullable(),
  current: z.boolean().describe('what agents are told to run'),
});

/** Bytes of an Ed25519 signature. */
const signature = z
  .string()
  .regex(/^[A-Za-z0-9+/]{86}==$/, 'must be an Ed25519 signature in base64, as `errand agents sign` prints it');

/** Publishing the agent's package. */
export const releaseRoutes =
  ({ releases }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    // A package is written to disk as it comes, and is never whole in memory.
    app.addContentTypeParser('application/octet-stream', (_request, payload, done) => done(null, payload));
    const tags = ['agents'];
    app.get('/api/releases', {
      schema: {
        tags,
        summary: 'Packages of the agent, newest first',
        response: { 200: z.object({ releases: z.array(releaseSchema) }), ...refusals },
      },
      handler: async () => ({ releases: releases.list() }),
    });
    app.put('/api/releases/:version', {
      schema: {
        tags,
        summary: 'Publish a package (the body, application/octet-stream): agents that upgrade by themselves load it',
        params,
        querystring: z.object({ signature: signature.optional() }),
        response: { 200: releaseSchema, ...refusalsOfChange },
      },
      handler: async ({ params, query, body }) => {
        const content = body as AsyncIterable<Uint8Array> | null;
        if (content === null || typeof content !== 'object' || !(Symbol.asyncIterator in content))
          throw new AppError('invalid_request', 'the body must be the package, as application/octet-stream', {
            field: 'body',
          });
        const request = { version: params.version, signature: query.signature ?? null, actor: ACTOR };
        return releases.publish(request, content);
      },
    });
    app.post('/api/releases/:version/withdraw', {
      schema: {
        tags,
        summary: 'Offer a package no more; agents that run it go on running it',
        params,
        response: { 200: releaseSchema, ...refusalsWithId },
      },
      handler: async ({ params }) => releases.withdraw(params.version, ACTOR),
    });
  };

/** Loading it, for agents. */
export const agentReleaseRoutes =
  ({ releases, tokens }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    app.get('/api/agent/releases/:version', {
      schema: {
        tags: ['agent protocol'],
        security: [{ agent: [] }],
        summary: 'The package of the agent; `Range: bytes=<from>-` goes on with one that was cut off',
        params,
        response: { ...refusalsWithId },
      },
      handler: async (request, reply) => {
        await tokens.identify(bearerOf(request.headers));
        const found = await releases.packageOf(request.params.version);
        const from = rangeOf(request.headers.range, found.bytes);
        reply
          .code(from > 0 ? 206 : 200)
          .type('application/octet-stream')
          .header('content-length', found.bytes - from)
          .header('accept-ranges', 'bytes')
          .header('etag', `"${found.sha256}"`);
        if (from > 0) reply.header('content-range', `bytes ${from}-${found.bytes - 1}/${found.bytes}`);
        return reply.send(createReadStream(found.path, { start: from }) as never);
      },
    });
  };

/** The first byte that is asked for. Any other kind of range is answered by the whole (RFC 9110, section 14.2). */
function rangeOf(header: string | undefined, bytes: number): number {
  const match = /^bytes=(\d{1,15})-$/.exec(header ?? '');
  const from = match ? Number(match[1]) : 0;
  return from < bytes ? from : 0;
}
