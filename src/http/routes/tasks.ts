import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { AppError } from '../../errors.ts';
import { cancelTasksVerb } from '../../tasks/cancel.ts';
import { getTask, listTasks, taskEvents } from '../../tasks/read.ts';
import { retryTasksVerb } from '../../tasks/retry.ts';
import { TASK_STATES } from '../../tasks/states.ts';
import type { TaskRecord } from '../../tasks/task.ts';
import type { Rooms } from '../rooms.ts';
import {
  ACTOR,
  filterId,
  idOf,
  idParams,
  notFound,
  pageOf,
  pageQuery,
  refusals,
  refusalsOfChange,
  refusalsWithId,
} from './shapes.ts';
import { eventSchema, taskPageSchema, taskSchema } from './task-shapes.ts';

/** Reading, cancelling and retrying tasks. Submitting them is on the hot path (hot-routes.ts). */
export const taskRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    await app.register(readingRoutes(rooms));
    await app.register(changingRoutes(rooms));
  };

const listQuery = z.strictObject({
  status: z.enum(TASK_STATES).optional(),
  template: z.string().max(48).optional(),
  session: z.string().max(512).optional(),
  agent: z.string().max(64).optional().describe('tasks that this agent holds'),
  flow: z.string().max(32).optional(),
  ...pageQuery,
});

const readingRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const { store } = rooms;
    const tags = ['tasks'];
    app.get('/api/tasks', {
      schema: {
        tags,
        summary: 'List tasks, the newest first',
        querystring: listQuery,
        response: { 200: taskPageSchema, ...refusals },
      },
      handler: async ({ query }) => {
        const { status, template, session, agent, flow, cursor, limit } = query;
        const places = { flowId: filterId(store.ids, flow, 'flow'), before: filterId(store.ids, cursor, 'cursor') };
        const filter = { status, template, sessionKey: session, agentId: agent, ...places, limit: limit + 1 };
        const { items, next } = pageOf(await listTasks(store, store.ids, filter), limit, (task) => task.taskId);
        return { tasks: items, next };
      },
    });
    app.get('/api/tasks/:id', {
      schema: {
        tags,
        summary: 'One task with its runs',
        params: idParams,
        response: { 200: taskSchema, ...refusalsWithId },
      },
      handler: async ({ params }) => {
        const task = await taskOf(rooms, params.id);
        const id = idOf(store.ids, params.id, 'task');
        const artifacts = (await rooms.artifacts.ofTasks([id])).get(id);
        return { ...task, ...(artifacts && { artifacts }) };
      },
    });
    app.get('/api/tasks/:id/events', {
      schema: {
        tags,
        summary: 'What happened to a task',
        params: idParams,
        response: { 200: z.object({ events: z.array(eventSchema) }), ...refusalsWithId },
      },
      handler: async ({ params }) => {
        await taskOf(rooms, params.id);
        return { events: await taskEvents(store, store.ids, idOf(store.ids, params.id, 'task')) };
      },
    });
  };

const changedSchema = taskSchema.pick({ taskId: true, status: true, cancelRequestedAt: true });

const changingRoutes =
  ({ store, emit, ...rooms }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['tasks'];
    const cancel = cancelTasksVerb(emit);
    const retry = retryTasksVerb(emit);
    const changed = async (text: string) => taskOf({ ...rooms, store }, text);
    app.post('/api/tasks/:id/cancel', {
      schema: {
        tags,
        summary: 'Cancel a task; one that runs is told to stop and ends within its grace',
        params: idParams,
        response: { 202: changedSchema, ...refusalsOfChange },
      },
      handler: async ({ params }, reply) => {
        const [answer] = await store.write(cancel, [{ id: idOf(store.ids, params.id, 'task'), by: ACTOR }]);
        if (answer!.result === 'unknown') throw notFound('task', params.id);
        if (answer!.result === 'already')
          throw new AppError('conflict', `task ${params.id} is already ${answer!.status}`);
        return reply.code(202).send(await changed(params.id));
      },
    });
    app.post('/api/tasks/:id/retry', {
      schema: {
        tags,
        summary: 'Run a finished or blocked task again',
        params: idParams,
        response: { 202: changedSchema, ...refusalsOfChange },
      },
      handler: async ({ params }, reply) => {
        const [answer] = await store.write(retry, [{ id: idOf(store.ids, params.id, 'task'), by: ACTOR }]);
        if (answer!.result === 'unknown') throw notFound('task', params.id);
        if (answer!.result === 'refused')
          throw new AppError(
            'conflict',
            answer!.because === 'needs'
              ? `task ${params.id} is ${answer!.status} because of tasks that it needs; it goes on by itself once they have succeeded`
              : `task ${params.id} is ${answer!.status}; only a task that ended without success can be retried`,
          );
        return reply.code(202).send(await changed(params.id));
      },
    });
  };

async function taskOf({ store }: Pick<Rooms, 'store'>, text: string): Promise<TaskRecord> {
  const task = await getTask(store, store.ids, idOf(store.ids, text, 'task'));
  if (!task) throw notFound('task', text);
  return task;
}
