import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { TASK_STATES } from '../../tasks/states.ts';
import type { Rooms } from '../rooms.ts';
import { epochMs, idOf, idParams, notFound, publicId, refusalsWithId } from './shapes.ts';

const texts = z.object({ en: z.string(), zh: z.string() });

/** `Explanation` of src/tasks/explain.ts, and of which task. */
const whySchema = z.object({
  taskId: publicId,
  status: z.enum(TASK_STATES),
  reason: z.string().describe('a stable word; docs/why.md has them all'),
  text: texts,
  next: texts.optional().describe('what would change it'),
  untilAt: epochMs.optional().describe('when it changes by itself, at the latest'),
  others: z
    .array(z.object({ reason: z.string(), text: texts }))
    .optional()
    .describe('what else keeps it, in the order in which it would have to go'),
});

/** Why a task has not finished, or how it ended. */
export const whyRoutes =
  ({ store, why }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    app.get('/api/tasks/:id/why', {
      schema: {
        tags: ['tasks'],
        summary: 'Why a task has not finished and what would change that, or how it ended and why',
        params: idParams,
        response: { 200: whySchema, ...refusalsWithId },
      },
      handler: async ({ params }) => {
        const id = idOf(store.ids, params.id, 'task');
        const explained = await why.explainNow(id);
        if (!explained) throw notFound('task', params.id);
        return { taskId: store.ids.encode(id), ...explained };
      },
    });
  };
