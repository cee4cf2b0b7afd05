import type { FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { diagnosticsRequestSchema } from '../../agents/health-protocol.ts';
import type { AgentIdentity } from '../../agents/tokens.ts';
import { diagnosticsOf, keepDiagnostic } from '../../health/diagnostics.ts';
import { bearerOf } from '../auth.ts';
import type { Rooms } from '../rooms.ts';
import { epochMs, idParams, notFound, refusals, refusalsWithId } from './shapes.ts';

/** Bytes; the bundle itself is bounded by the schema. */
const BODY_LIMIT = 160 * 1024;

const diagnosticSchema = z.object({
  at: epochMs,
  failed: z.array(z.string()),
  bundle: z.unknown().describe('figures and names of programs, as the agent saw them (docs/agents.md)'),
});

/** What an agent says of its own health. */
export const agentDiagnosticsRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const who = new WeakMap<FastifyRequest, AgentIdentity>();
    // Before the body is read, so that strangers cannot make the gateway read one.
    app.addHook('onRequest', async (request) => {
      who.set(request, await rooms.tokens.identify(bearerOf(request.headers)));
    });
    app.post('/api/agent/diagnostics', {
      bodyLimit: BODY_LIMIT,
      schema: {
        tags: ['agent protocol'],
        security: [{ agent: [] }],
        summary: 'Self-checks of the agent have failed; the last 20 bundles are kept',
        body: diagnosticsRequestSchema,
        response: { 200: z.object({ ok: z.literal(true) }), ...refusals },
      },
      handler: async (request) => {
        const { agentId, instanceId, failed, bundle } = request.body;
        const instance = await rooms.registry.instance(who.get(request)!, agentId, instanceId);
        rooms.registry.contact(instance, null);
        await keepDiagnostic(rooms.store, instance.agentId, { failed, bundle: storable(bundle) });
        return { ok: true as const };
      },
    });
  };

/** What is kept of the health of an agent. */
export const agentHealthRoutes =
  ({ registry, store }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    app.get('/api/agents/:id/diagnostics', {
      schema: {
        tags: ['agents'],
        summary: 'What self-checks of an agent have found, the newest first; the last 20',
        params: idParams,
        response: { 200: z.object({ diagnostics: z.array(diagnosticSchema) }), ...refusalsWithId },
      },
      handler: async ({ params }) => {
        const isKnown = (await registry.list()).some(({ agentId }) => agentId === params.id);
        if (!isKnown) throw notFound('agent', params.id);
        return { diagnostics: await diagnosticsOf(store, params.id) };
      },
    });
  };

/** Texts that every database can hold. */
function storable(value: unknown): unknown {
  return JSON.parse(
    JSON.stringify(value, (_key, inner: unknown) =>
      typeof inner === 'string' ? inner.toWellFormed().replaceAll('\0', '') : inner,
    ),
  );
}
