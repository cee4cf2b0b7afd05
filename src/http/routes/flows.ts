import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { AppError } from '../../errors.ts';
import { FLOW_STATES } from '../../flows/follow.ts';
import { flowById, flowsOf, flowTasks } from '../../flows/queries.ts';
import { retryFlowsVerb } from '../../flows/retry.ts';
import { cancelFlowsVerb } from '../../flows/stop.ts';
import type { IdCodec } from '../../ids.ts';
import type { FlowTable } from '../../store/tables.ts';
import { NOTIFY_POLICIES, type NotifyPolicy, TASK_STATES, type TaskState } from '../../tasks/states.ts';
import type { Rooms } from '../rooms.ts';
import {
  ACTOR,
  epochMs,
  filterId,
  idOf,
  idParams,
  nextCursor,
  notFound,
  pageOf,
  pageQuery,
  publicId,
  refusals,
  refusalsOfChange,
  refusalsWithId,
} from './shapes.ts';

const flowSchema = z.object({
  flowId: publicId,
  sessionKey: z.string().optional().describe('absent: no conversation owns it'),
  status: z.enum(FLOW_STATES),
  revision: z.number().int(),
  goal: z.string(),
  notifyPolicy: z.enum(NOTIFY_POLICIES),
  waitTarget: z.string().optional(),
  blockedTaskId: publicId.optional(),
  blockedSummary: z.string().optional(),
  cancelRequestedAt: epochMs.optional(),
  createdAt: epochMs,
  updatedAt: epochMs,
  endedAt: epochMs.optional(),
  deadlineAt: epochMs.optional().describe('what is left of it then is stopped'),
});
type Flow = z.infer<typeof flowSchema>;

const flowTaskSchema = z.object({ taskId: publicId, status: z.enum(TASK_STATES) });

const listQuery = z.strictObject({
  status: z.enum(FLOW_STATES).optional(),
  session: z.string().max(512).optional(),
  ...pageQuery,
});

/** Reading, cancelling and retrying flows. */
export const flowRoutes =
  ({ store, emit }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['flows'];
    app.get('/api/flows', {
      schema: {
        tags,
        summary: 'List flows, the newest first',
        querystring: listQuery,
        response: { 200: z.object({ flows: z.array(flowSchema), next: nextCursor }), ...refusals },
      },
      handler: async ({ query: { status, session, cursor, limit } }) => {
        const filter = { status, sessionKey: session, before: filterId(store.ids, cursor, 'cursor'), limit: limit + 1 };
        const flows = (await flowsOf(store, filter)).map((row) => flowOf(row, store.ids));
        const { items, next } = pageOf(flows, limit, (flow) => flow.flowId);
        return { flows: items, next };
      },
    });
    app.get('/api/flows/:id', {
      schema: {
        tags,
        summary: 'One flow with its tasks; with a session key, the newest of that conversation',
        params: z.object({ id: z.string().min(1).max(512) }),
        response: { 200: flowSchema.extend({ tasks: z.array(flowTaskSchema) }), ...refusalsWithId },
      },
      handler: async ({ params: { id } }) => {
        const row = await findFlow(store, id);
        if (!row) throw notFound('flow', id);
        const tasks = await store.all(flowTasks, { id: row.id });
        return {
          ...flowOf(row, store.ids),
          tasks: tasks.map((task) => ({ taskId: store.ids.encode(task.id), status: task.status as TaskState })),
        };
      },
    });
    const cancel = cancelFlowsVerb(emit);
    app.post('/api/flows/:id/cancel', {
      schema: {
        tags,
        summary: 'Cancel what is left of a flow; what runs is told to stop. It gets no more tasks',
        params: idParams,
        response: { 202: flowSchema, ...refusalsOfChange },
      },
      handler: async ({ params }, reply) => {
        const id = idOf(store.ids, params.id, 'flow');
        const [answer] = await store.write(cancel, [{ id, by: ACTOR }]);
        if (answer!.result === 'unknown') throw notFound('flow', params.id);
        if (answer!.result === 'already')
          throw new AppError('conflict', `flow ${params.id} is already ${answer!.status}`);
        return reply.code(202).send(flowOf((await store.all(flowById, { id }))[0]!, store.ids));
      },
    });
    retryRoute(app, store, emit);
  };

function retryRoute(app: Parameters<FastifyPluginAsyncZod>[0], store: Rooms['store'], emit: Rooms['emit']): void {
  const retry = retryFlowsVerb(emit);
  app.post('/api/flows/:id/retry', {
    schema: {
      tags: ['flows'],
      summary: 'Run again what failed of a failed flow, or what was called off of a cancelled one',
      params: idParams,
      response: {
        202: flowSchema.extend({ retried: z.array(publicId).describe('the tasks that run again') }),
        ...refusalsOfChange,
      },
    },
    handler: async ({ params }, reply) => {
      const id = idOf(store.ids, params.id, 'flow');
      const [answer] = await store.write(retry, [{ id, by: ACTOR }]);
      if (answer!.result === 'unknown') throw notFound('flow', params.id);
      if (answer!.result === 'refused')
        throw new AppError('conflict', `flow ${params.id} is ${answer!.status}: there is nothing to retry`);
      if (answer!.result === 'held')
        throw new AppError(
          'conflict',
          `flow ${params.id} is ${answer!.status}, and none of its tasks can run again by itself: retry the cancelled task that they need first`,
        );
      const flow = flowOf((await store.all(flowById, { id }))[0]!, store.ids);
      return reply.code(202).send({ ...flow, retried: answer!.tasks.map((task) => store.ids.encode(task)) });
    },
  });
}

async function findFlow(store: Rooms['store'], text: string): Promise<FlowTable | undefined> {
  const id = store.ids.decode(text);
  const rows =
    id === undefined ? await flowsOf(store, { sessionKey: text, limit: 1 }) : await store.all(flowById, { id });
  return rows[0];
}

function flowOf(row: FlowTable, ids: IdCodec): Flow {
  return {
    flowId: ids.encode(row.id),
    sessionKey: row.owner_session_key || undefined,
    status: row.status as Flow['status'],
    revision: row.revision,
    goal: row.goal,
    notifyPolicy: row.notify_policy as NotifyPolicy,
    waitTarget: row.wait_target ?? undefined,
    blockedTaskId: row.blocked_task_id === null ? undefined : ids.encode(row.blocked_task_id),
    blockedSummary: row.blocked_summary ?? undefined,
    cancelRequestedAt: row.cancel_requested_at ?? undefined,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    endedAt: row.ended_at ?? undefined,
    deadlineAt: row.deadline_at ?? undefined,
  };
}
