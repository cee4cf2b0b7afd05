import { mayWith } from '../sessions/rights.ts';
import type { Tx } from '../store/tx.ts';
import { getTask, listTasks } from '../tasks/read.ts';
import type { TaskState } from '../tasks/states.ts';
import type { TaskRecord } from '../tasks/task.ts';
import type { CommandContext } from './command.ts';
import { askerOfFlow } from './owner-queries.ts';

/** States of what is not over, in the order of lists. */
export const LIVE: readonly TaskState[] = ['running', 'leased', 'waiting', 'queued', 'paused'];

/** As many tasks as one answer lists. */
export const LIST_LIMIT = 10;

/** A task and its row's id. */
export interface FoundTask {
  readonly id: number;
  readonly task: TaskRecord;
}

/**
 * The task that a person means by a short id. A task of another conversation does not exist for those who do not administer:
 * the answer is the same as for an id nobody ever had.
 */
export async function findTask(
  tx: Tx,
  { rooms, sessionKey, speaker }: CommandContext,
  word: string,
): Promise<FoundTask | undefined> {
  const id = rooms.ids.decode(word.replace(/^#/, ''));
  const task = id === undefined ? undefined : await getTask(tx, rooms.ids, id);
  if (id === undefined || !task) return undefined;
  return task.sessionKey === sessionKey || speaker.role === 'admin' ? { id, task } : undefined;
}

/**
 * The task whose course a person wants to change, else what to say to them: that there is none, or, in a group, that somebody else has
 * asked for it.
 */
export async function findToChange(tx: Tx, context: CommandContext, word: string): Promise<FoundTask | string> {
  const found = await findTask(tx, context, word);
  if (!found) return noSuchTask(context, word);
  return (await mayChange(tx, context, found.task)) ? found : notYours(context, found.task);
}

/** Whether it is this person's: in a group one conversation has many people, and who administers may change everything. */
export async function mayChange(
  tx: Tx,
  { rooms, route, sessionKey, speaker }: CommandContext,
  { sessionKey: whose, flowId }: Pick<TaskRecord, 'sessionKey' | 'flowId'>,
): Promise<boolean> {
  const flow = route.chatKind === 'direct' || flowId === undefined ? undefined : rooms.ids.decode(flowId);
  const ownerId = flow === undefined ? undefined : (await tx.all(askerOfFlow, { flow }))[0]?.user_id;
  return mayWith(speaker.role, speaker.userId, 'run', { sameConversation: whose === sessionKey, ownerId });
}

/** What is not over in this conversation, oldest first within each state; at most `LIST_LIMIT` and one more of each. */
export async function liveTasks(tx: Tx, { rooms, sessionKey }: CommandContext): Promise<TaskRecord[]> {
  const found: TaskRecord[] = [];
  for (const status of LIVE) {
    const tasks = await listTasks(tx, rooms.ids, { sessionKey, status, limit: LIST_LIMIT + 1 });
    found.push(...tasks.reverse());
  }
  return found;
}

/** The answer where an id names nothing that this person may see. */
export function noSuchTask({ lang }: CommandContext, word: string): string {
  const shown = word.slice(0, 20);
  return {
    en: `There is no errand ${shown} in this conversation. /tasks lists the last ones.`,
    zh: `本会话中没有编号为 ${shown} 的任务。发送 /tasks 查看最近的任务。`,
  }[lang];
}

function notYours({ lang }: CommandContext, { taskId }: TaskRecord): string {
  return {
    en: `Somebody else has asked for ${taskId}: only they and administrators can change it.`,
    zh: `${taskId} 是其他人提交的任务，只有本人和管理员可以更改。`,
  }[lang];
}

/** The answer where a command needs an id and got none. */
export function idMissing({ lang }: CommandContext, usage: string): string {
  return {
    en: `Which errand? ${usage}; /tasks lists the last ones.`,
    zh: `请注明任务编号：${usage}。发送 /tasks 查看最近的任务。`,
  }[lang];
}
