import { randomUUID } from 'node:crypto';
import type { Command } from 'commander';
import { AppError } from '../errors.ts';
import type { TaskEventRecord } from '../tasks/read.ts';
import { isFinal, type TaskState } from '../tasks/states.ts';
import { type Api, path } from './api.ts';
import type { Act, Context } from './context.ts';
import { printable } from './table.ts';

interface SendOptions {
  session?: string;
  wait?: true;
  as?: string;
}

/** The answer of `GET /api/inbox/:id`. */
interface Fate {
  inboxId: string;
  status: 'new' | 'done' | 'refused' | 'ignored' | 'failed';
  reason?: string;
  settled: boolean;
  errand?: 'queued' | 'started' | 'failed';
  tasks: { taskId: string; status: TaskState }[];
  said: { id: string; text: string; taskId?: string }[];
}

/** `errand send` */
export function sendCommand(program: Command, act: Act): void {
  program
    .command('send <text>')
    .description('say something as a person in the web chat would: a command, or words that trigger a template')
    .option('--session <key>', 'in this conversation (default: the own one of the user)')
    .option('--as <user>', 'as this user (default: admin)')
    .option('--wait', 'go on until the final answer; exit code 1 when the task did not succeed')
    .addHelpText(
      'after',
      '\nExamples:\n  errand send "/run hello name=Ada" --wait\n  errand send "/status" --wait --as ada',
    )
    .action(act(send));
}

async function send(context: Context, text: string, options: SendOptions): Promise<number> {
  const api = context.api();
  const body = { text, messageId: randomUUID(), user: options.as, sessionKey: options.session };
  const sent = await api.post<{ sessionKey: string; inboxId: string }>('/api/chat/messages', body);
  if (!options.wait) {
    context.show(sent, () => `Sent as message ${sent.inboxId}.`);
    return 0;
  }
  const fate = await follow(api, sent.inboxId, (line) => {
    if (!context.json) context.io.out(`${printable(line)}\n`);
  });
  if (context.json) context.show({ ...sent, ...fate }, () => '');
  return exitCodeOf(fate);
}

const POLL_MS = 250;
/** A gateway that is restarted meanwhile comes back within this, milliseconds. */
const AWAY_LIMIT_MS = 60_000;

/** Waits until nothing more will follow the message; hands out the progress of its tasks and what is said about it, each once. */
async function follow(api: Api, inboxId: string, onNews: (text: string) => void): Promise<Fate> {
  const told = new Set<string>();
  const tell = (key: string, text: string) => {
    if (!told.has(key)) onNews(text);
    told.add(key);
  };
  for (;;) {
    const fate = await patiently(() => api.get<Fate>(path`/api/inbox/${inboxId}`));
    for (const { taskId } of fate.tasks) for (const { key, text } of await progressOf(api, taskId)) tell(key, text);
    for (const { id, text } of fate.said) tell(id, text);
    if (fate.settled) return fate;
    await pause(POLL_MS);
  }
}

/** From the events: the task itself keeps only its newest. */
async function progressOf(api: Api, taskId: string): Promise<{ key: string; text: string }[]> {
  const { events } = await patiently(() => api.get<{ events: TaskEventRecord[] }>(path`/api/tasks/${taskId}/events`));
  return events.flatMap(({ type, runId, seq, data }) => {
    if (type !== 'progress') return [];
    const { percent, message = '' } = data as { percent?: number; message?: string };
    return [
      {
        key: `${runId}/${seq}`,
        text: `${percent === undefined ? '' : `${percent}%`.padStart(4)} ${message}`.trimEnd(),
      },
    ];
  });
}

/** The message is stored: a gateway that is away for a moment is no reason to give up. */
async function patiently<T>(call: () => Promise<T>): Promise<T> {
  for (let waited = 0; ; waited += POLL_MS) {
    try {
      return await call();
    } catch (error) {
      const away = error instanceof AppError && (error.code === 'unreachable' || error.code === 'unavailable');
      if (!away || waited >= AWAY_LIMIT_MS) throw error;
      await pause(POLL_MS);
    }
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** @throws AppError where the message was not acted on and nothing was said about it */
function exitCodeOf({ status, reason, errand, tasks, said }: Fate): number {
  if (status === 'refused' || status === 'ignored') {
    throw new AppError('forbidden', `the message was ${status} (${reason ?? 'no reason given'})`);
  }
  const unfinished = tasks.filter((task) => isFinal(task.status) && task.status !== 'succeeded');
  if (said.length === 0 && unfinished.length > 0)
    throw new AppError('internal', `task ${unfinished[0]!.taskId} ended as ${unfinished[0]!.status}`);
  return status === 'failed' || errand === 'failed' || unfinished.length > 0 ? 1 : 0;
}
