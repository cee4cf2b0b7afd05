import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { AppError } from '../../errors.ts';
import {
  type PlaceAnswer,
  pauseTasksVerb,
  resumeTasksVerb,
  setNotifyPolicyVerb,
  setPriorityVerb,
} from '../../tasks/controls-tasks.ts';
import { getTask } from '../../tasks/read.ts';
import { NOTIFY_POLICIES, PRIORITIES } from '../../tasks/states.ts';
import type { TaskRecord } from '../../tasks/task.ts';
import type { Rooms } from '../rooms.ts';
import { ACTOR, idOf, idParams, notFound, refusalsOfChange } from './shapes.ts';
import { taskSchema } from './task-shapes.ts';

const why = z.string().min(1).max(500).optional().describe('kept in the audit');
const placeSchema = taskSchema.pick({ taskId: true, status: true, priority: true });
const toldSchema = taskSchema.pick({ taskId: true, status: true, notifyPolicy: true, deliveryStatus: true });

/** The place of one task in the line: set aside, taken up again, moved up or down. A repeated call answers as the first did. */
export const taskPlaceRoutes =
  ({ store, emit }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const verbs = { pause: pauseTasksVerb(emit), resume: resumeTasksVerb(emit) };
    const setPriority = setPriorityVerb(emit);
    const setNotifyPolicy = setNotifyPolicyVerb(emit);
    app.addHook('preValidation', async (request) => {
      request.body ??= {};
    });
    for (const [verb, summary, refused] of [
      ['pause', 'Set a queued task aside; its time to live stands still', 'only a queued task can be paused'],
      ['resume', 'Let a paused task go on, in its old place', 'it is not paused'],
    ] as const) {
      app.post(`/api/tasks/:id/${verb}`, {
        schema: {
          tags: ['tasks'],
          summary,
          params: idParams,
          body: z.strictObject({ why }).prefault({}),
          response: { 200: placeSchema, ...refusalsOfChange },
        },
        handler: async ({ params: { id }, body }) => {
          const [answer] = await store.write(verbs[verb], [{ id: idOf(store.ids, id, 'task'), by: ACTOR, ...body }]);
          return placeOf(store, id, answer!, refused);
        },
      });
    }
    app.post('/api/tasks/:id/priority', {
      schema: {
        tags: ['tasks'],
        summary: 'Raise or lower the priority of a task that no agent holds',
        params: idParams,
        body: z.strictObject({ priority: z.enum(PRIORITIES), why }),
        response: { 200: placeSchema, ...refusalsOfChange },
      },
      handler: async ({ params: { id }, body }) => {
        const [answer] = await store.write(setPriority, [{ id: idOf(store.ids, id, 'task'), by: ACTOR, ...body }]);
        return placeOf(store, id, answer!, 'its priority means nothing any more');
      },
    });
    app.post('/api/tasks/:id/notify', {
      schema: {
        tags: ['tasks'],
        summary: 'Change what its conversation is told of a task; what was sent stays said',
        params: idParams,
        body: z.strictObject({ policy: z.enum(NOTIFY_POLICIES), why }),
        response: { 200: toldSchema, ...refusalsOfChange },
      },
      handler: async ({ params: { id }, body }) => {
        const [answer] = await store.write(setNotifyPolicy, [{ id: idOf(store.ids, id, 'task'), by: ACTOR, ...body }]);
        return placeOf(store, id, answer!, 'nothing of it is told any more');
      },
    });
  };

/** The task as it is now. @throws AppError not_found, conflict with why it was refused */
async function placeOf(store: Rooms['store'], id: string, answer: PlaceAnswer, refused: string): Promise<TaskRecord> {
  if (answer.result === 'refused') throw new AppError('conflict', `task ${id} is ${answer.status}: ${refused}`);
  const task = answer.result === 'unknown' ? undefined : await getTask(store, store.ids, idOf(store.ids, id, 'task'));
  if (!task) throw notFound('task', id);
  return task;
}
