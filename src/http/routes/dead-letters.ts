import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { AppError } from '../../errors.ts';
import { replayWithArgs } from '../../flows/replay.ts';
import type { IdCodec } from '../../ids.ts';
import { type DeadState, deathWords } from '../../notifications/wording.ts';
import type { Tx } from '../../store/tx.ts';
import { discardLetters, type LetterAnswer, letterState } from '../../tasks/dead-letters.ts';
import { type LetterRow, lettersOfTasks, selectLetters } from '../../tasks/dead-letters-queries.ts';
import { getTask } from '../../tasks/read.ts';
import { ERROR_CLASSES, type ErrorClass } from '../../tasks/run-words.ts';
import { LETTER_STATES, TASK_STATES, type TaskState } from '../../tasks/states.ts';
import type { Rooms } from '../rooms.ts';
import {
  ACTOR,
  epochMs,
  filterId,
  idOf,
  nextCursor,
  notFound,
  pageOf,
  pageQuery,
  publicId,
  refusals,
  refusalsOfChange,
  refusalsWithId,
} from './shapes.ts';
import { taskSchema } from './task-shapes.ts';

/** Letters that one call decides on at most; `more` says whether there are others. */
const LETTERS_A_CALL = 200;

const letterSchema = z.object({
  taskId: publicId,
  state: z.enum(LETTER_STATES),
  template: z.string(),
  label: z.string().optional(),
  sessionKey: z.string().optional(),
  endedAs: z.enum(['failed', 'timed_out', 'lost']).describe('how the task ended when it died'),
  taskStatus: z.enum(TASK_STATES).describe('what the task is now'),
  generation: z.number().int(),
  attempt: z.number().int().describe('executions of the generation that died'),
  deaths: z.number().int(),
  text: z.object({ en: z.string(), zh: z.string() }).describe('the end in plain words'),
  error: z.string().optional(),
  errorClass: z.enum(ERROR_CLASSES).optional(),
  reason: z.string().optional(),
  firstDiedAt: epochMs,
  diedAt: epochMs,
  decidedAt: epochMs.optional(),
  decidedBy: z.string().optional(),
  note: z.string().optional().describe('the reason that was given with the decision'),
});
type Letter = z.infer<typeof letterSchema>;

const listQuery = z.strictObject({
  state: z.enum(LETTER_STATES).optional(),
  template: z.string().max(48).optional(),
  session: z.string().max(512).optional(),
  ...pageQuery,
});

const note = z.string().trim().min(1).max(500);
const selection = {
  ids: z.array(z.string().min(1).max(64)).min(1).max(LETTERS_A_CALL).optional(),
  all: z.literal(true).optional().describe(`every dead letter that fits, ${LETTERS_A_CALL} a call, the oldest first`),
  template: z.string().min(1).max(48).optional().describe('with all: only of this template'),
  before: epochMs.optional().describe('with all: only those that died before'),
};
type Selection = z.infer<z.ZodObject<typeof selection>>;

const replayBody = z
  .strictObject({
    ...selection,
    args: z
      .record(z.string().max(64), z.union([z.string(), z.number(), z.boolean()]))
      .optional()
      .describe('arguments that are to be different; empty text takes an optional one away'),
    reason: note.optional(),
  })
  .superRefine(checkSelection)
  .refine((body) => body.args === undefined || body.ids !== undefined || body.template !== undefined, {
    path: ['args'],
    message: 'need ids, or all of one template',
  });
const discardBody = z.strictObject({ ...selection, reason: note }).superRefine(checkSelection);

const skipped = z
  .array(z.object({ taskId: publicId, state: z.enum(LETTER_STATES) }))
  .describe('those that were decided before, and how');
const more = z
  .boolean()
  .describe('with all: there are others; call again, with `decidedAt` of the first answer as `before`');

/** Tasks that ended without success and wait for a person's decision. */
export const deadLetterRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    await app.register(readingRoutes(rooms));
    await app.register(decidingRoutes(rooms));
  };

const readingRoutes =
  ({ store }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['dead letters'];
    app.get('/api/dead-letters', {
      schema: {
        tags,
        summary: 'List dead letters, the last to die first',
        querystring: listQuery,
        response: { 200: z.object({ deadLetters: z.array(letterSchema), next: nextCursor }), ...refusals },
      },
      handler: async ({ query: { state, template, session, cursor, limit } }) => {
        const beforeSeq = filterId(store.ids, cursor, 'cursor');
        const filter = { state, template, sessionKey: session, beforeSeq, limit: limit + 1 };
        const { items, next } = pageOf(await selectLetters(store, filter), limit, ({ seq }) => store.ids.encode(seq));
        return { deadLetters: items.map((row) => letterOf(row, store.ids)), next };
      },
    });
    app.get('/api/dead-letters/:taskId', {
      schema: {
        tags,
        summary: 'One dead letter with its task',
        params: z.object({ taskId: z.string().min(1).max(64) }),
        response: { 200: letterSchema.extend({ task: taskSchema }), ...refusalsWithId },
      },
      handler: async ({ params }) => {
        const id = idOf(store.ids, params.taskId, 'dead letter');
        const [row] = await store.all(lettersOfTasks, { rows: [[id]] });
        const task = row && (await getTask(store, store.ids, id));
        if (!row || !task) throw notFound('dead letter', params.taskId);
        return { ...letterOf(row, store.ids), task };
      },
    });
  };

const decidingRoutes =
  ({ store, templates, settings, emit }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['dead letters'];
    const replayRooms = { ids: store.ids, templates, timeZone: settings.timeZone, emit };
    app.post('/api/dead-letters/replay', {
      schema: {
        tags,
        summary: 'Run the tasks of dead letters again, all or none',
        body: replayBody,
        response: {
          200: z.object({ replayed: z.array(publicId), skipped, more, decidedAt: epochMs }),
          ...refusalsOfChange,
        },
      },
      handler: async ({ body: { args, reason, ...chosen } }) => {
        const { done, ...rest } = await store.transact('http.replay', async (tx) => {
          const { ids, isMore } = await idsOf(tx, chosen, store.ids);
          const answers = await replayWithArgs(tx, { ids, by: ACTOR, args, reason }, replayRooms);
          return { ...outcomeOf(ids, answers, isMore, chosen, store.ids), decidedAt: tx.now };
        });
        return { replayed: done, ...rest };
      },
    });
    app.post('/api/dead-letters/discard', {
      schema: {
        tags,
        summary: 'Put dead letters away with a reason, all or none',
        body: discardBody,
        response: {
          200: z.object({ discarded: z.array(publicId), skipped, more, decidedAt: epochMs }),
          ...refusalsOfChange,
        },
      },
      handler: async ({ body: { reason, ...chosen } }) => {
        const { done, ...rest } = await store.transact('http.discard', async (tx) => {
          const { ids, isMore } = await idsOf(tx, chosen, store.ids);
          const answers = await discardLetters(
            tx,
            ids.map((id) => ({ id, by: ACTOR, reason })),
          );
          return { ...outcomeOf(ids, answers, isMore, chosen, store.ids), decidedAt: tx.now };
        });
        return { discarded: done, ...rest };
      },
    });
  };

function checkSelection(body: Selection, context: z.RefinementCtx): void {
  const refuse = (field: string, message: string) => context.addIssue({ code: 'custom', path: [field], message });
  if ((body.ids === undefined) === (body.all === undefined)) refuse('ids', 'give either ids or all');
  if (body.ids === undefined) return;
  for (const field of ['template', 'before'] as const)
    if (body[field] !== undefined) refuse(field, 'narrows all; it means nothing beside ids');
}

/** @throws AppError not_found naming the first id that is none */
async function idsOf(
  tx: Tx,
  { ids, template, before }: Selection,
  codec: IdCodec,
): Promise<{ ids: number[]; isMore: boolean }> {
  if (ids !== undefined)
    return { ids: [...new Set(ids.map((text) => idOf(codec, text, 'dead letter')))], isMore: false };
  const filter = { state: 'dead', template, diedBefore: before, oldestFirst: true, limit: LETTERS_A_CALL + 1 } as const;
  const rows = await selectLetters(tx, filter);
  return { ids: rows.slice(0, LETTERS_A_CALL).map((row) => row.task_id), isMore: rows.length > LETTERS_A_CALL };
}

/**
 * Thrown from within the transaction, so that nothing of the call stays.
 * @throws AppError not_found for a task that is no dead letter; conflict where ids were given and every one is decided
 */
function outcomeOf(
  ids: readonly number[],
  answers: readonly LetterAnswer[],
  isMore: boolean,
  { ids: named }: Selection,
  codec: IdCodec,
): { done: string[]; skipped: { taskId: string; state: Letter['state'] }[]; more: boolean } {
  const done: string[] = [];
  const refused: { taskId: string; state: Letter['state'] }[] = [];
  for (const [index, answer] of answers.entries()) {
    const taskId = codec.encode(ids[index]!);
    if (answer.result === 'unknown') throw notFound('dead letter', taskId);
    if (answer.result === 'done') done.push(taskId);
    else refused.push({ taskId, state: answer.state });
  }
  if (named !== undefined && done.length === 0) {
    const { taskId, state } = refused[0]!;
    throw new AppError(
      'conflict',
      `dead letter ${taskId} is ${state}${refused.length > 1 ? ', and so are the others' : ''}`,
    );
  }
  return { done, skipped: refused, more: isMore };
}

function letterOf(row: LetterRow, ids: IdCodec): Letter {
  const end = { error: row.error, errorZh: row.errorZh, reason: row.reason, attempt: row.attempt };
  const endedAs = row.status as DeadState;
  return {
    taskId: ids.encode(row.task_id),
    state: letterState(row),
    template: row.template,
    label: row.label ?? undefined,
    sessionKey: row.session_key ?? undefined,
    endedAs,
    taskStatus: row.task_status as TaskState,
    generation: row.generation,
    attempt: row.attempt,
    deaths: row.deaths,
    text: { en: deathWords('en', endedAs, end), zh: deathWords('zh', endedAs, end) },
    error: row.error ?? undefined,
    errorClass: (row.error_class as ErrorClass | null) ?? undefined,
    reason: row.reason ?? undefined,
    firstDiedAt: row.first_died_at,
    diedAt: row.died_at,
    decidedAt: row.decided_at ?? undefined,
    decidedBy: row.decided_by ?? undefined,
    note: row.note ?? undefined,
  };
}
