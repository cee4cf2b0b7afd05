import cookiePlugin from '@fastify/cookie';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { type ArtifactAnswer, artifactRequestSchema, contentRequestSchema } from '../../agents/artifact-protocol.ts';
import type { AgentIdentity } from '../../agents/tokens.ts';
import { heldTemplate } from '../../artifacts/queries.ts';
import { AppError } from '../../errors.ts';
import { contentFor } from '../../flows/spec.ts';
import { bearerOf } from '../auth.ts';
import type { Rooms } from '../rooms.ts';
import { callerOf, conversationOf } from './chat-identity.ts';
import { idOf, idParams, notFound, refusals, refusalsWithId } from './shapes.ts';

const answerSchema = z.object({
  answer: z.enum(['more', 'stored', 'refused', 'lease_lost']),
  offset: z.number().int().optional(),
  reason: z.string().optional(),
});

/** Base64 is a third longer, and there is a head. */
const PIECE_BODY_LIMIT = 1024 * 1024;

/** What agents bring and ask for beside their reports: files of their runs, and what a template with a pinned digest consists of. */
export const agentArtifactRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const who = new WeakMap<FastifyRequest, AgentIdentity>();
    // Before the body is read, so that strangers cannot make the gateway read one.
    app.addHook('onRequest', async (request) => {
      who.set(request, await rooms.tokens.identify(bearerOf(request.headers), request.socket));
    });
    const schema = { tags: ['agent protocol'], security: [{ agent: [] }] };
    app.post('/api/agent/artifacts', {
      bodyLimit: PIECE_BODY_LIMIT,
      schema: {
        ...schema,
        summary: 'One piece of a file of a held run; the answer says from where to go on',
        body: artifactRequestSchema,
        response: { 200: answerSchema, ...refusals },
      },
      handler: async (request): Promise<ArtifactAnswer> => {
        const { runId, leaseToken, data, agentId: _agent, instanceId: _instance, ...piece } = request.body;
        const { agentId } = await instanceOf(rooms, who.get(request)!, request.body);
        const bringer = { agentId, leaseToken, runId: runOf(rooms, runId) };
        return rooms.artifacts.receive(bringer, { ...piece, data: Buffer.from(data, 'base64') });
      },
    });
    app.post('/api/agent/template', {
      schema: {
        ...schema,
        summary: 'What the template of a held run consists of; its digest is the one that an owner may pin',
        body: contentRequestSchema,
        response: { 200: z.object({ content: z.unknown() }), ...refusals },
      },
      handler: async (request) => {
        const { agentId } = await instanceOf(rooms, who.get(request)!, request.body);
        const { runId, leaseToken } = request.body;
        const held = { run_id: runOf(rooms, runId), agent_id: agentId, lease_token: leaseToken };
        const [row] = await rooms.store.all(heldTemplate, held);
        const template = row && rooms.templates.get(row.template);
        if (!template)
          throw new AppError('not_found', `agent ${agentId} holds no run ${runId} of a template that is there`);
        return { content: contentFor(template) };
      },
    });
  };

/** Fetching a file: for the administrator, and for the person of the web chat in whose conversation it was made. */
export const artifactRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    if (!app.hasRequestDecorator('cookies')) await app.register(cookiePlugin);
    app.get('/api/artifacts/:id', {
      schema: {
        tags: ['tasks'],
        summary: 'A file that a run brought home; with the admin token, or the login of the web chat that asked for it',
        params: idParams,
        response: { 200: z.unknown(), ...refusalsWithId },
      },
      handler: async (request, reply) => {
        const caller = await callerOf(request, rooms);
        const found = await rooms.artifacts.open(idOf(rooms.store.ids, request.params.id, 'artifact'));
        const isTheirs = caller.kind === 'admin' || found?.sessionKey === conversationOf(caller.userId).sessionKey;
        if (found && isTheirs) return send(reply, found);
        found?.body.destroy();
        throw notFound('artifact', request.params.id);
      },
    });
  };

/** The bytes are a stranger's: they are saved, never shown, and no browser may take them for a page of ours. */
function send(
  reply: FastifyReply,
  { name, bytes, body }: { name: string; bytes: number; body: NodeJS.ReadableStream },
) {
  const fileName = name.split('/').at(-1)!;
  const plain = fileName.replace(/[^\x20-\x7e]|["\\%]/g, '_');
  const encoded = encodeURIComponent(fileName).replace(
    /['()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return reply
    .headers({
      'content-type': 'application/octet-stream',
      'content-length': bytes,
      'content-disposition': `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`,
      'content-security-policy': "default-src 'none'; sandbox",
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
    })
    .send(body);
}

async function instanceOf(
  { registry }: Pick<Rooms, 'registry'>,
  identity: AgentIdentity,
  head: { agentId: string; instanceId: string },
): Promise<AgentIdentity> {
  registry.contact(await registry.instance(identity, head.agentId, head.instanceId), null);
  return identity;
}

function runOf({ store }: Pick<Rooms, 'store'>, text: string): number {
  const id = store.ids.decode(text);
  if (id === undefined) throw new AppError('invalid_request', 'runId: this is no run id', { field: 'runId' });
  return id;
}
