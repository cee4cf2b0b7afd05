import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import type { Rooms } from '../rooms.ts';
import { traceOf } from '../trace/trace.ts';
import { TRACE_KINDS } from '../trace/trace-words.ts';
import { epochMs, notFound, publicId, refusalsWithId } from './shapes.ts';

const traceSchema = z.object({
  key: z.string(),
  entries: z.array(
    z.object({
      at: epochMs,
      kind: z.enum(TRACE_KINDS),
      id: publicId,
      taskId: publicId.optional(),
      text: z.string(),
      textZh: z.string().describe('the same in Chinese'),
    }),
  ),
  truncated: z.boolean().describe('more tasks have this key than are shown'),
});

/** From a key to everything it touched. */
export const traceRoutes =
  ({ store }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    app.get('/api/trace', {
      schema: {
        tags: ['tasks'],
        summary:
          'All that a business key, an effect key or an id touched, from the message to the receipt, oldest first',
        querystring: z.strictObject({ key: z.string().min(1).max(512) }),
        response: { 200: traceSchema, ...refusalsWithId },
      },
      handler: async ({ query: { key } }) => {
        const trace = await traceOf(store, key);
        if (!trace) throw notFound('task, flow, effect or message with the key', key);
        return trace;
      },
    });
  };
