import type { OutboxTable } from '../../../src/store/outbox-tables.ts';
import type { TaskTable } from '../../../src/store/tables.ts';
import { isFinal, type TaskState } from '../../../src/tasks/states.ts';
import type { Rows } from '../rows.ts';
import { firstBreach, type Invariant, type Look } from './invariant.ts';

export const MESSAGE_LAWS: readonly Invariant[] = [
  {
    name: 'each end of a notified task has exactly one final message, a silent one none',
    breach: ({ now, changed }) => {
      const messages = messagesOf(changed.tasks, now);
      return firstBreach(changed.tasks, (task) => finalsBreach(task, messages.get(task.id) ?? []));
    },
  },
  {
    name: 'the delivery status tells what became of the final message',
    breach: ({ now, changed }) => {
      const messages = messagesOf(changed.tasks, now);
      return firstBreach(changed.tasks, (task) =>
        firstBreach(messages.get(task.id) ?? [], (row) => deliveryBreach(row, task)),
      );
    },
  },
  {
    name: 'a chat has one sender at a time',
    breach: ({ now, changed }) => {
      if (changed.outbox.length === 0) return undefined;
      const busy = new Map<string, number>();
      return firstBreach(now.outbox.values(), ({ id, channel, chat, status }) => {
        if (status !== 'sending') return undefined;
        const other = busy.get(`${channel}/${chat}`);
        busy.set(`${channel}/${chat}`, id);
        return other === undefined ? undefined : `messages ${other} and ${id} are being sent to one chat`;
      });
    },
  },
  {
    name: 'messages of a chat arrive in order, updates behind results, and twice only where their sender was in doubt',
    breach: ({ world, now }) => receiptsBreach(world, now),
  },
];

function finalsBreach(task: TaskTable, messages: readonly OutboxTable[]): string | undefined {
  // A graph is told as a whole; see the laws of graphs.
  if (task.graph === 1) return undefined;
  const silent = task.session_key === null || task.notify_policy === 'silent';
  if (silent) return messages.length === 0 ? undefined : `silent task ${task.id} has ${messages.length} messages`;
  for (let generation = 1; generation <= task.generation; generation += 1) {
    const ended = generation < task.generation || isFinal(task.status as TaskState);
    const key = `task:${task.id}:${generation}:final`;
    const count = messages.filter(({ kind, dedupe_key }) => kind === 'final' && dedupe_key === key).length;
    if (count !== (ended ? 1 : 0))
      return `task ${task.id} (${task.status}) has ${count} final messages for generation ${generation}`;
  }
  const all = messages.filter(({ kind }) => kind === 'final').length;
  return all <= task.generation
    ? undefined
    : `task ${task.id} has ${all} final messages in ${task.generation} generations`;
}

function deliveryBreach(row: OutboxTable, task: TaskTable): string | undefined {
  // The last task of a graph brings the message of the whole, too, and its status tells of that.
  if (task.graph === 1) return undefined;
  if (!isFinal(task.status as TaskState) || row.dedupe_key !== `task:${task.id}:${task.generation}:final`)
    return undefined;
  const expected = row.status === 'sent' ? 'delivered' : isWaiting(row) ? 'session_queued' : 'failed';
  return task.delivery_status === expected
    ? undefined
    : `the final message of task ${task.id} is ${row.status}, its delivery status ${task.delivery_status}`;
}

/** Looks only at what is new since the last time. Results give way to nothing; updates may come later, but not after their own result. */
function receiptsBreach(world: Look['world'], { outbox }: Rows): string | undefined {
  const { platforms, memory } = world;
  while (memory.receiptsSeen < platforms.receipts.length) {
    const { channel, chat, outboxId } = platforms.receipts[memory.receiptsSeen]!;
    memory.receiptsSeen += 1;
    const row = outbox.get(outboxId);
    const key = `${channel}/${chat}/${row?.rank ?? 0}`;
    const last = memory.lastReceipt.get(key) ?? 0;
    const isRepeat = memory.received.has(outboxId);
    memory.received.add(outboxId);
    if (isRepeat && !platforms.doubted.has(outboxId)) return `message ${outboxId} came twice without need`;
    const isLate =
      row?.kind === 'update' &&
      [...outbox.values()].some((other) => isResultOf(other, row) && memory.received.has(other.id));
    if (isLate && !isRepeat) return `update ${outboxId} came after the result of its task`;
    if (!isRepeat && outboxId < last) return `message ${outboxId} came after message ${last}`;
    memory.lastReceipt.set(key, Math.max(last, outboxId));
  }
  return undefined;
}

const isResultOf = (result: OutboxTable, update: OutboxTable) =>
  result.kind === 'final' && result.task_id === update.task_id && result.id > update.id;

const isWaiting = ({ status }: OutboxTable) => status === 'pending' || status === 'sending';

function messagesOf(tasks: readonly TaskTable[], { outbox }: Rows): Map<number, OutboxTable[]> {
  const found = new Map(tasks.map(({ id }): [number, OutboxTable[]] => [id, []]));
  if (found.size > 0) for (const row of outbox.values()) if (row.task_id !== null) found.get(row.task_id)?.push(row);
  return found;
}
