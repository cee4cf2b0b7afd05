import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Log } from '../../log.ts';
import type { LogItem } from '../../tasks/log-follow.ts';
import type { LogChunk } from '../../tasks/log-reading.ts';

export interface LogStreamOptions {
  /** Milliseconds between signs of life; default 15,000. */
  readonly heartbeatMs?: number;
  readonly signal: AbortSignal;
  readonly log: Log;
}

/** Shorter than the idle limits of the usual proxies. */
const HEARTBEAT_MS = 15_000;
/** What a client is told to wait before it connects again, milliseconds. */
const RETRY_MS = 1_000;

/** A log as server-sent events (HTML standard, section 9.2): `attempt`, `log` with its cursor as id, `omitted`, `end`. Takes the response over. */
export function followAsEvents(
  response: ServerResponse,
  items: AsyncGenerator<LogItem>,
  options: LogStreamOptions,
): Promise<void> {
  return pour(response, items, {
    ...options,
    type: 'text/event-stream; charset=utf-8',
    textOf: eventOf,
    first: `retry: ${RETRY_MS}\n\n`,
    alive: ': alive\n\n',
  });
}

/** The same for people: text with a line between two runs. Takes the response over. */
export function followAsText(
  response: ServerResponse,
  items: AsyncGenerator<LogItem>,
  options: LogStreamOptions,
): Promise<void> {
  const write = textWriter();
  return pour(response, items, { ...options, type: 'text/plain; charset=utf-8', textOf: write, first: '', alive: '' });
}

/** A part of a log as text, with a line between two runs. */
export function textOfLog(chunks: readonly LogChunk[]): string {
  const write = textWriter();
  return chunks
    .map((chunk, index) => {
      const isNew = index === 0 || chunk.runId !== chunks[index - 1]!.runId;
      return (isNew ? write({ type: 'attempt', ...chunk }) : '') + write({ type: 'log', ...chunk });
    })
    .join('');
}

interface Form extends LogStreamOptions {
  readonly type: string;
  textOf(item: LogItem): string;
  readonly first: string;
  readonly alive: string;
}

/** Waits for a slow reader; what the follower may hold meanwhile is its own bound. */
async function pour(response: ServerResponse, items: AsyncGenerator<LogItem>, form: Form): Promise<void> {
  const { signal, log, heartbeatMs = HEARTBEAT_MS } = form;
  response.on('error', () => undefined);
  response.writeHead(200, {
    'content-type': form.type,
    'cache-control': 'no-store, no-transform',
    'x-accel-buffering': 'no',
    'x-content-type-options': 'nosniff',
  });
  response.flushHeaders();
  if (form.first !== '') response.write(form.first);
  const heartbeat = setInterval(() => {
    if (form.alive !== '' && !response.writableNeedDrain && !response.writableEnded) response.write(form.alive);
  }, heartbeatMs);
  try {
    for await (const item of items) {
      if (!response.write(form.textOf(item))) await once(response, 'drain', { signal });
    }
  } catch (error) {
    if (!signal.aborted) log.warn('logs.stream_failed', { error });
  } finally {
    clearInterval(heartbeat);
    response.end();
  }
}

/** JSON holds no line break, so one data line is enough. Only a piece of the log is a place to go on from. */
function eventOf(item: LogItem): string {
  const { type, ...data } = item;
  const id = item.type === 'log' ? `id: ${item.id}\n` : '';
  return `${id}event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
}

function textWriter(): (item: LogItem) => string {
  let isFirst = true;
  let atLineStart = true;
  const line = (text: string) => {
    const out = `${atLineStart ? '' : '\n'}${text}\n`;
    atLineStart = true;
    return out;
  };
  return (item) => {
    if (item.type === 'log') {
      atLineStart = item.text.endsWith('\n');
      return item.text;
    }
    if (item.type === 'omitted') return line(`[errand] ${item.lines} lines omitted`);
    if (item.type === 'end') return '';
    const mark = isFirst && item.attempt === 1 ? '' : line(`[errand] try ${item.attempt} on ${item.agentId}`);
    isFirst = false;
    return mark;
  };
}
