import { joined, type Words } from '../rich-text.ts';
import type { Tx } from '../store/tx.ts';
import { LOG_PAGE, lastLogChunks, lastLogCursor } from '../tasks/log-reading.ts';
import { isFinal } from '../tasks/states.ts';
import type { Command, CommandContext } from './command.ts';
import { followsOfSession, insertLogFollow } from './log-follow-queries.ts';
import { lastLines, logText } from './log-words.ts';
import { FOLLOW_LIMIT_MS } from './logs-follow.ts';
import { type FoundTask, findTask, idMissing, noSuchTask } from './task-lookup.ts';

/** What an errand printed: /logs. */

/** Logs that one conversation may follow at once. */
const MAX_FOLLOWS = 5;
const FOLLOW_WORDS: ReadonlySet<string> = new Set(['follow', '-f', '跟踪', '跟随']);

const logs: Command = {
  name: 'logs',
  aliases: ['日志'],
  right: 'talk',
  usage: '/logs <id> [follow]',
  help: {
    en: 'the last lines an errand printed; follow: also what it goes on to print',
    zh: '查看任务输出的最后几行；加 follow（跟踪）则持续显示新输出',
  },
  async run(tx, context) {
    const [word = '', option, ...more] = context.rest.split(/\s+/);
    if (word === '') return idMissing(context, logs.usage);
    const found = await findTask(tx, context, word);
    if (!found) return noSuchTask(context, word);
    if (option === undefined) return shown(tx, context, found);
    if (more.length > 0 || !FOLLOW_WORDS.has(option.toLowerCase()))
      return { en: `I do not understand that. ${logs.usage}`, zh: `无法理解。用法：${logs.usage}` }[context.lang];
    return isFinal(found.task.status) ? shown(tx, context, found) : follow(tx, context, found);
  },
};

export const logCommands: readonly Command[] = [logs];

async function shown(tx: Tx, { lang, rooms }: CommandContext, { id, task }: FoundTask): Promise<Words> {
  const text = logText(lang, await lastLogChunks(tx, rooms.ids, id, LOG_PAGE));
  if (text.trim() === '') return { en: 'This errand has printed nothing.', zh: '该任务没有输出。' }[lang];
  return lastLines(lang, task.taskId, text);
}

/** The follow is a row, so that it goes on after a restart. Other channels than the web chat are told what is new from here on. */
async function follow(tx: Tx, context: CommandContext, { id, task }: FoundTask): Promise<Words> {
  const { lang, rooms, route, sessionKey } = context;
  const { taskId } = task;
  const open = await tx.all(followsOfSession, { session: sessionKey });
  if (open.some((other) => other.task_id === id))
    return { en: `I am showing what ${taskId} prints already.`, zh: `已经在显示 ${taskId} 的输出。` }[lang];
  if (open.length >= MAX_FOLLOWS)
    return {
      en: `I follow ${open.length} errands here already; wait until one of them is over.`,
      zh: `这里已在跟踪 ${open.length} 个任务，请等其中一个结束。`,
    }[lang];
  const isEdited = route.channel === 'webchat';
  const from = isEdited ? { run: 0, seq: 0 } : await lastLogCursor(tx, id);
  const row = [id, sessionKey, route, lang, from.run, from.seq, tx.now, tx.now + FOLLOW_LIMIT_MS];
  await tx.run(insertLogFollow, { rows: [[await tx.ids(1), ...row]] });
  tx.afterCommit(() => rooms.wakeLogFollows?.());
  const said = {
    en: `I show here what ${taskId} prints until it is over.`,
    zh: `将在这里显示 ${taskId} 的输出，直到结束。`,
  }[lang];
  if (isEdited) return said;
  const soFar = await shown(tx, context, { id, task });
  return joined([soFar, said], '\n');
}
