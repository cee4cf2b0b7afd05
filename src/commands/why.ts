import { titleFor } from '../notifications/wording.ts';
import { bold, code, joined, rich, type Words } from '../rich-text.ts';
import type { Tx } from '../store/tx.ts';
import { listTasks } from '../tasks/read.ts';
import type { Command, CommandContext } from './command.ts';
import { type FoundTask, findTask, LIVE, noSuchTask } from './task-lookup.ts';

/** Why an errand is not done, or how it ended: /why. */
const why: Command = {
  name: 'why',
  aliases: ['为什么'],
  right: 'talk',
  usage: '/why [id]',
  help: { en: 'why an errand is not done; without an id the newest', zh: '查看任务为何未完成；省略编号则为最新的一个' },
  async run(tx, context) {
    if (context.rest !== '') {
      const found = await findTask(tx, context, context.rest);
      return found ? answer(tx, context, found) : noSuchTask(context, context.rest);
    }
    const newest = await newestLive(tx, context);
    if (newest) return answer(tx, context, newest);
    return {
      en: 'Nothing is running or waiting here. /why <id> tells how an errand ended.',
      zh: '当前没有运行或等待中的任务。发送 /why <id> 查看任务是如何结束的。',
    }[context.lang];
  },
};

export const whyCommands: readonly Command[] = [why];

/** `Hello · k7q2`, then what is the matter, then what would change it. The values of arguments are not told. */
async function answer(tx: Tx, { lang, rooms }: CommandContext, { id, task }: FoundTask): Promise<Words> {
  const { text, next } = (await rooms.why.explain(tx, [id])).get(id)!;
  const title = titleFor(rooms.templates.get(task.template)?.title[lang], task.template, task.label ?? null);
  const name = rich`${bold(title)} · ${code(task.taskId)}`;
  return joined([name, text[lang], ...(next ? [next[lang]] : [])], '\n');
}

async function newestLive(tx: Tx, { rooms, sessionKey }: CommandContext): Promise<FoundTask | undefined> {
  const newest: FoundTask[] = [];
  for (const status of LIVE) {
    const [task] = await listTasks(tx, rooms.ids, { sessionKey, status, limit: 1 });
    if (task) newest.push({ id: rooms.ids.decode(task.taskId)!, task });
  }
  return newest.sort((a, b) => b.id - a.id)[0];
}
