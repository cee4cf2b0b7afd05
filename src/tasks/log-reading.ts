import type { IdCodec } from '../ids.ts';
import type { Reader } from '../store/tx.ts';
import { type LogRow, logsAfter, logsAtEnd, logTaskState } from './log-queries.ts';
import { type RunSnapshot, snapshotText } from './snapshot-words.ts';
import type { TaskState } from './states.ts';

/** Where in the log of a task a reader is: behind the report `seq` of this run. */
export interface LogCursor {
  readonly run: number;
  readonly seq: number;
}

/** A piece of the log. Its text is what a program wrote: valid, masked by its agent, and not to be trusted. */
export interface LogChunk {
  /** The cursor behind it. */
  readonly id: string;
  readonly runId: string;
  /** Which execution of the task it is, from 1; of a task that a person has retried it begins anew. */
  readonly attempt: number;
  readonly agentId: string;
  /** `agent`: what the agent itself says of the run. */
  readonly stream: 'stdout' | 'stderr' | 'agent';
  readonly text: string;
  /** By the server's clock, epoch milliseconds. */
  readonly at: number;
}

/** Pieces of one read, with what is needed to go on from them. */
export interface LogPage {
  /** Read before the pieces: what is read after a final state is complete. Undefined: there is no such task. */
  readonly status: TaskState | undefined;
  readonly chunks: readonly LogChunk[];
  /** Behind the last piece. */
  readonly cursor: LogCursor;
  /** There is nothing more at the moment. */
  readonly isLast: boolean;
}

export const LOG_BEGINNING: LogCursor = { run: 0, seq: 0 };

/** Pieces of one page; each is at most 65,536 characters. */
export const LOG_PAGE = 200;

/** The next pieces of a task's log after a cursor. @param limit how many, at most `LOG_PAGE` */
export async function readLogPage(
  reader: Reader,
  ids: IdCodec,
  task: number,
  after: LogCursor,
  limit = LOG_PAGE,
): Promise<LogPage> {
  const [head] = await reader.all(logTaskState, { task });
  const rows = await reader.all(logsAfter, { task, ...after, limit });
  const last = rows.at(-1);
  return {
    status: head?.status as TaskState | undefined,
    chunks: rows.map((row) => chunkOf(row, ids)),
    cursor: last ? { run: last.run_id, seq: last.seq } : after,
    isLast: rows.length < limit,
  };
}

/** The last pieces, oldest first. @param limit how many at most */
export async function lastLogChunks(reader: Reader, ids: IdCodec, task: number, limit: number): Promise<LogChunk[]> {
  return (await reader.all(logsAtEnd, { task, limit })).reverse().map((row) => chunkOf(row, ids));
}

/** Behind the last piece that there is. */
export async function lastLogCursor(reader: Reader, task: number): Promise<LogCursor> {
  const [last] = await reader.all(logsAtEnd, { task, limit: 1 });
  return last ? { run: last.run_id, seq: last.seq } : LOG_BEGINNING;
}

/** Whether `a` comes before `b`. */
export function isBefore(a: LogCursor, b: LogCursor): boolean {
  return a.run < b.run || (a.run === b.run && a.seq < b.seq);
}

/** `k3f9.17`, as `LogChunk.id`. */
export function cursorText({ run, seq }: LogCursor, ids: IdCodec): string {
  return `${ids.encode(run)}.${seq}`;
}

/** The place that a text names; undefined where it is none. `0` is the beginning. */
export function parseCursor(text: string, ids: IdCodec): LogCursor | undefined {
  if (text === '0') return LOG_BEGINNING;
  const [, id, seq] = /^([0-9A-Za-z]{4,10})\.(\d{1,15})$/.exec(text) ?? [];
  const run = id === undefined ? undefined : ids.decode(id);
  return run === undefined ? undefined : { run, seq: Number(seq) };
}

function chunkOf(row: LogRow, ids: IdCodec): LogChunk {
  const { run_id, seq, type, at, attempt, agent_id } = row;
  const data = JSON.parse(row.data) as unknown;
  const said =
    type === 'snapshot'
      ? ({ stream: 'agent', text: snapshotText(data as RunSnapshot) } as const)
      : (data as Pick<LogChunk, 'stream' | 'text'>);
  const { stream, text } = said;
  return {
    id: cursorText({ run: run_id, seq }, ids),
    runId: ids.encode(run_id),
    attempt,
    agentId: agent_id,
    stream,
    text,
    at,
  };
}
