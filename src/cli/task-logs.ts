import type { Command } from 'commander';
import { AppError } from '../errors.ts';
import type { LogItem } from '../tasks/log-follow.ts';
import type { LogChunk } from '../tasks/log-reading.ts';
import { type Api, path } from './api.ts';
import type { Act, Context } from './context.ts';
import { printable } from './table.ts';

/** `errand tasks logs` */
export function logsCommand(tasks: Command, act: Act): void {
  tasks
    .command('logs <task>')
    .description('print what the runs of a task printed')
    .option('-f, --follow', 'go on until the task is over; Ctrl-C ends the printing and leaves the task alone')
    .addHelpText(
      'after',
      '\nExit codes with -f: 0 the task is over, however it ended; 5 the gateway was away for more than a minute.\n\nExample:\n  errand tasks logs -f k3f9',
    )
    .action(act(logs));
}

async function logs(context: Context, id: string, options: { follow?: true }): Promise<void> {
  const api = context.api();
  const print = printer(context, id);
  if (options.follow) return follow(api, id, print);
  let after: string | undefined;
  let runId: string | undefined;
  do {
    const page = await api.get<{ logs: LogChunk[]; next?: string }>(path`/api/tasks/${id}/logs`, { after });
    for (const chunk of page.logs) {
      if (chunk.runId !== runId) print({ type: 'attempt', ...chunk });
      runId = chunk.runId;
      print({ type: 'log', ...chunk });
    }
    after = page.next;
  } while (after !== undefined);
}

const PAUSE_MS = 500;
/** A gateway that is restarted meanwhile comes back within this, milliseconds. */
const AWAY_LIMIT_MS = 60_000;
/** The gateway gives a sign of life every 15 s; without one the connection is dead. */
const SILENCE_MS = 45_000;

/** Goes on behind the last piece that was printed, whatever becomes of the connection. */
async function follow(api: Api, id: string, print: (item: LogItem) => void): Promise<void> {
  const place: Place = { lastId: undefined, runId: undefined, seenAt: 0 };
  for (;;) {
    try {
      if (await followOnce(api, id, place, print)) return;
    } catch (error) {
      if (!isAway(error) || place.seenAt === 0 || performance.now() - place.seenAt > AWAY_LIMIT_MS) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

interface Place {
  lastId: string | undefined;
  /** Of the last piece: a stream that is opened again begins with its attempt. */
  runId: string | undefined;
  /** When the gateway last spoke, by the monotonic clock; 0: never. */
  seenAt: number;
}

const isAway = (error: unknown) =>
  error instanceof AppError && (error.code === 'unreachable' || error.code === 'unavailable');

/** Answers whether the task is over; false where the connection ended before. */
async function followOnce(api: Api, id: string, place: Place, print: (item: LogItem) => void): Promise<boolean> {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const resume: Record<string, string> = place.lastId === undefined ? {} : { 'last-event-id': place.lastId };
    const headers = { ...resume, accept: 'text/event-stream' };
    const response = await api.open(`${path`/api/tasks/${id}/logs`}?follow=1`, headers, silence.signal);
    for await (const item of itemsOf(response.body!)) {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      place.seenAt = performance.now();
      if (item === undefined) continue;
      if (item.type === 'end') return true;
      if (item.type === 'log') place.lastId = item.id;
      if (item.type === 'attempt') {
        if (item.runId === place.runId) continue;
        place.runId = item.runId;
      }
      print(item);
    }
    return false;
  } catch (error) {
    // A connection that broke in the middle is opened again.
    if (place.seenAt > 0 && !(error instanceof AppError)) return false;
    throw error;
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

/** The events of a stream (HTML standard, section 9.2.6), as far as our gateway writes them; undefined for a sign of life. */
async function* itemsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<LogItem | undefined> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const bytes of body as unknown as AsyncIterable<Uint8Array>) {
    text += decoder.decode(bytes, { stream: true });
    const blocks = text.split('\n\n');
    text = blocks.pop()!;
    for (const block of blocks) yield itemOf(block);
  }
}

function itemOf(block: string): LogItem | undefined {
  const fields = new Map(
    block.split('\n').map((line): [string, string] => {
      const at = line.indexOf(': ');
      return [line.slice(0, at), line.slice(at + 2)];
    }),
  );
  const [type, data] = [fields.get('event'), fields.get('data')];
  return type === undefined || data === undefined ? undefined : ({ type, ...JSON.parse(data) } as LogItem);
}

/** Prints texts as they are, and the agent's and our own remarks on lines of their own. */
function printer({ io, json }: Context, id: string): (item: LogItem) => void {
  if (json) return (item) => (item.type === 'log' ? io.out(`${JSON.stringify(withoutType(item))}\n`) : undefined);
  let atLineStart = true;
  let isFirst = true;
  const say = (text: string) => {
    io.out(`${atLineStart ? '' : '\n'}[errand] ${printable(text)}\n`);
    atLineStart = true;
  };
  return (item) => {
    if (item.type === 'log') {
      io.out(printable(item.text));
      atLineStart = item.text.endsWith('\n');
    } else if (item.type === 'attempt') {
      if (!isFirst || item.attempt > 1) say(`try ${item.attempt} on ${item.agentId}`);
      isFirst = false;
    } else if (item.type === 'omitted') say(`${item.lines} lines omitted; errand tasks logs ${id} shows all`);
  };
}

function withoutType({ type: _type, ...chunk }: LogItem & { type: 'log' }): LogChunk {
  return chunk;
}
