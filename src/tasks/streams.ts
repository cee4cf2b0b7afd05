import type { Tx } from '../store/tx.ts';
import { insertStreams, streamsByKey } from './line-queries.ts';
import type { NewTask } from './task.ts';

/**
 * A stream: the tasks that the same agents may take and that the same limits hold back, so they can stand in one line and the line is
 * taken from, or passed by, as a whole. Its row is written once and never changed; retention removes it when no task has it any more.
 */
export interface Stream {
  readonly id: number;
  /** Who may take it; see `queueName`. */
  readonly queue: string;
  /** Whose turn it is: the conversation, a serial key of its own, or empty for nobody's. */
  readonly owner: string;
  readonly template: string;
  readonly lane: string;
  /** `template:key` of tasks that must not run at the same time; empty without. */
  readonly serial: string;
}

export type StreamKey = Omit<Stream, 'id'>;

/**
 * The queue a task waits in, for example `default/shell`, `@printer-pc/shell` or `default/shell?city=sz`: everything that decides
 * which agents may take it, so that claims look at few queues instead of filtering one long one.
 */
export function queueName(task: Pick<NewTask, 'pool' | 'agent' | 'runtime' | 'labels'>): string {
  const place = task.agent === null ? task.pool : `@${task.agent}`;
  return `${place}/${task.runtime}${labelSuffix(task.labels)}`;
}

/** `?city=sz&floor=3`, sorted by name; empty without labels. */
export function labelSuffix(labels: Readonly<Record<string, string>> | null): string {
  if (labels === null) return '';
  const pairs = Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
  return pairs.length === 0 ? '' : `?${pairs.map(([key, value]) => `${key}=${value}`).join('&')}`;
}

/** The pool, or `@agent`, of a queue. */
export function placeOf(queue: string): string {
  return queue.slice(0, queue.indexOf('/'));
}

/** Tasks with a serial key stand in a line of that key alone, whoever asked: strictly one after another. */
export function streamKey(task: NewTask, queue: string): StreamKey {
  const serial = task.serialKey === null ? '' : `${task.template}:${task.serialKey}`;
  const owner = serial === '' ? (task.sessionKey ?? '') : `serial:${serial}`;
  return { queue, owner, template: task.template, lane: task.lane, serial };
}

/** The ids of these streams, in order; rows that are missing are made. */
export async function ensureStreams(tx: Tx, keys: readonly StreamKey[]): Promise<number[]> {
  const distinct = new Map<string, { row: unknown[]; id: number }>();
  const texts = keys.map((key) => {
    const text = `${key.queue}\n${key.owner}\n${key.template}\n${key.lane}\n${key.serial}`;
    if (!distinct.has(text))
      distinct.set(text, { row: [key.queue, key.owner, key.template, key.lane, key.serial], id: 0 });
    return text;
  });
  const wanted = [...distinct.values()];
  await find(tx, wanted);
  const missing = wanted.filter(({ id }) => id === 0);
  if (missing.length > 0) {
    const first = await tx.ids(missing.length);
    await tx.run(insertStreams, { rows: missing.map(({ row }, index) => [first + index, ...row]), now: tx.now });
    await find(tx, missing);
  }
  return texts.map((text) => distinct.get(text)!.id);
}

async function find(tx: Tx, wanted: readonly { row: unknown[]; id: number }[]): Promise<void> {
  const rows = wanted.map(({ row }, index) => [index, ...row]);
  for (const { place, id } of await tx.all(streamsByKey, { rows })) wanted[place]!.id = id;
}
