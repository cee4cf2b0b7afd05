import type { FastifyReply, FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { AppError } from '../../errors.ts';
import { LogFollows } from '../../tasks/log-follow.ts';
import { LOG_BEGINNING, LOG_PAGE, type LogCursor, parseCursor, readLogPage } from '../../tasks/log-reading.ts';
import { TASK_STATES } from '../../tasks/states.ts';
import type { Rooms } from '../rooms.ts';
import { epochMs, idOf, idParams, notFound, publicId, refusalsWithId } from './shapes.ts';
import { followAsEvents, followAsText, type LogStreamOptions, textOfLog } from './task-log-streams.ts';

const logSchema = z.object({
  id: z.string().describe('the cursor behind it: `after` of a call that goes on from here'),
  runId: publicId,
  attempt: z.number().int(),
  agentId: z.string(),
  stream: z.enum(['stdout', 'stderr', 'agent']),
  text: z.string(),
  at: epochMs,
});

const logQuery = z.strictObject({
  after: z.string().min(1).max(32).optional().describe('the `id` of a piece; what comes after it is told'),
  limit: z.coerce.number().int().min(1).max(LOG_PAGE).default(LOG_PAGE),
  follow: z
    .enum(['0', '1', 'true', 'false'])
    .optional()
    .describe('1: server-sent events until the task is over; with `Accept: text/plain` plain text'),
});

export interface LogRouteOptions extends Partial<LogStreamOptions> {
  /** Default: one of its own. */
  readonly follows?: LogFollows;
}

/** What the programs of a task printed: a page of it, all of it as text, or live. */
export const taskLogRoutes =
  (rooms: Rooms, options: LogRouteOptions = {}): FastifyPluginAsyncZod =>
  async (app) => {
    const { store, log } = rooms;
    const follows = options.follows ?? new LogFollows({ store, log });
    const closing = new AbortController();
    app.addHook('preClose', async () => closing.abort());
    app.get('/api/tasks/:id/logs', {
      schema: {
        tags: ['tasks'],
        summary: 'What the runs of a task printed; live with `follow=1`, resumable by Last-Event-ID',
        params: idParams,
        querystring: logQuery,
        response: {
          200: z.object({
            status: z.enum(TASK_STATES),
            logs: z.array(logSchema),
            next: z.string().optional().describe('`after` of the next page; absent where there is nothing more now'),
          }),
          ...refusalsWithId,
        },
      },
      handler: async (request, reply) => {
        const { limit } = request.query;
        const task = idOf(store.ids, request.params.id, 'task');
        const after = placeOf(rooms, request, request.query.after);
        const page = await readLogPage(store, store.ids, task, after, limit);
        if (page.status === undefined) throw notFound('task', request.params.id);
        const isText = wantsText(request);
        if (request.query.follow === '1' || request.query.follow === 'true') {
          follows.check(task);
          const signal = streamSignal(reply, closing.signal);
          reply.hijack();
          const items = follows.follow({ task, after, signal });
          await (isText ? followAsText : followAsEvents)(reply.raw, items, { ...options, signal, log });
          return reply;
        }
        if (isText) return reply.type('text/plain; charset=utf-8').send(textOfLog(page.chunks) as never);
        return {
          status: page.status,
          logs: [...page.chunks],
          ...(page.isLast ? {} : { next: page.chunks.at(-1)!.id }),
        };
      },
    });
  };

/** @throws AppError invalid_request for a cursor that is none */
function placeOf({ store }: Rooms, { headers }: FastifyRequest, after: string | undefined): LogCursor {
  const resumed = headers['last-event-id'];
  const isResumed = typeof resumed === 'string' && resumed !== '';
  const text = isResumed ? resumed : after;
  if (text === undefined) return LOG_BEGINNING;
  const cursor = parseCursor(text, store.ids);
  if (cursor) return cursor;
  const field = isResumed ? 'Last-Event-ID' : 'after';
  throw new AppError('invalid_request', `${field}: is not the id of a piece of a log`, { field });
}

const wantsText = ({ headers }: FastifyRequest) => /^text\/plain\b/.test(headers.accept ?? '');

function streamSignal(reply: FastifyReply, closing: AbortSignal): AbortSignal {
  const gone = new AbortController();
  reply.raw.once('close', () => gone.abort());
  if (reply.raw.destroyed) gone.abort();
  return AbortSignal.any([gone.signal, closing]);
}
