import { joined, type Words } from '../rich-text.ts';
import type { Tx } from '../store/tx.ts';
import { cancelTasks } from '../tasks/cancel.ts';
import { setNotifyPolicies } from '../tasks/controls-tasks.ts';
import { retryTasks } from '../tasks/retry.ts';
import { NOTIFY_POLICIES, type NotifyPolicy } from '../tasks/states.ts';
import { actorOf, type Command, type CommandContext } from './command.ts';
import {
  type FoundTask,
  findToChange,
  idMissing,
  LIST_LIMIT,
  liveTasks,
  mayChange,
  noSuchTask,
} from './task-lookup.ts';
import { listLine, nameOf, stateWord } from './task-words.ts';

/** Changing the course of an errand: /cancel, /retry, /notify. */
const cancel: Command = {
  name: 'cancel',
  aliases: ['取消'],
  right: 'run',
  usage: '/cancel [id]',
  help: { en: 'stop an errand; without an id the only one there is', zh: '取消任务；只有一个任务时可省略编号' },
  async run(tx, context) {
    if (context.rest !== '') {
      const found = await findToChange(tx, context, context.rest);
      return typeof found === 'string' ? found : cancelOne(tx, context, found);
    }
    const live = await ownTasks(tx, context);
    if (live.length === 0)
      return { en: 'Nothing is running or waiting here.', zh: '当前没有运行或等待中的任务。' }[context.lang];
    if (live.length > 1) return whichOne(tx, context, live.slice(0, LIST_LIMIT));
    return cancelOne(tx, context, { id: context.rooms.ids.decode(live[0]!.taskId)!, task: live[0]! });
  },
};

const retry: Command = {
  name: 'retry',
  aliases: ['重试'],
  right: 'run',
  usage: '/retry <id>',
  help: { en: 'run a failed or waiting errand again', zh: '重新运行失败或等待处理的任务' },
  async run(tx, context) {
    if (context.rest === '') return idMissing(context, retry.usage);
    const found = await findToChange(tx, context, context.rest);
    return typeof found === 'string' ? found : retryOne(tx, context, found);
  },
};

const notify: Command = {
  name: 'notify',
  aliases: ['通知'],
  right: 'run',
  usage: '/notify <done_only|state_changes|silent> <id>',
  help: {
    en: 'what you are told of an errand: its end, every change, or nothing',
    zh: '任务通知方式：仅结果、每次变化或不通知',
  },
  async run(tx, context) {
    const [policy = '', word = ''] = context.rest.split(/\s+/);
    if (!isNotifyPolicy(policy)) {
      return { en: `Which one? ${notify.usage}`, zh: `请注明通知方式：${notify.usage}` }[context.lang];
    }
    if (word === '') return idMissing(context, notify.usage);
    const found = await findToChange(tx, context, word);
    return typeof found === 'string' ? found : setNotify(tx, context, found, policy);
  },
};

export const controlCommands: readonly Command[] = [cancel, retry, notify];

/** What is not over here and this person's to change. */
async function ownTasks(tx: Tx, context: CommandContext): Promise<FoundTask['task'][]> {
  const own: FoundTask['task'][] = [];
  for (const task of await liveTasks(tx, context)) if (await mayChange(tx, context, task)) own.push(task);
  return own;
}

async function setNotify(
  tx: Tx,
  context: CommandContext,
  { id, task }: FoundTask,
  policy: NotifyPolicy,
): Promise<string> {
  await setNotifyPolicies(tx, [{ id, by: actorOf(context), policy }], context.rooms.emitTasks);
  const name = nameOf(context, task);
  const words: Record<NotifyPolicy, { en: string; zh: string }> = {
    done_only: { en: `You will hear how it ends: ${name}.`, zh: `结束时会通知您：${name}。` },
    state_changes: { en: `You will hear of every change: ${name}.`, zh: `每次变化都会通知您：${name}。` },
    silent: {
      en: `You will hear no more of it: ${name}. /task ${task.taskId} shows it.`,
      zh: `不再通知：${name}。发送 /task ${task.taskId} 查看。`,
    },
  };
  return words[policy][context.lang];
}

function isNotifyPolicy(text: string): text is NotifyPolicy {
  return (NOTIFY_POLICIES as readonly string[]).includes(text);
}

async function cancelOne(tx: Tx, context: CommandContext, { id, task }: FoundTask): Promise<string> {
  const { lang, rooms } = context;
  const name = nameOf(context, task);
  const answer = (await cancelTasks(tx, [{ id, by: actorOf(context) }], rooms.emitTasks))[0]!;
  switch (answer.result) {
    case 'cancelled':
      return { en: `Cancelled before it started: ${name}.`, zh: `已在开始前取消：${name}。` }[lang];
    case 'requested':
      return {
        en: `I told it to stop: ${name}. You will hear when it has.`,
        zh: `已要求停止：${name}。停止后会通知您。`,
      }[lang];
    case 'already': {
      const state = stateWord(lang, answer.status);
      return { en: `Too late: ${name} is already over (${state}).`, zh: `太晚了：${name} 已经结束（${state}）。` }[
        lang
      ];
    }
    case 'unknown':
      return noSuchTask(context, task.taskId);
  }
}

async function whichOne(tx: Tx, context: CommandContext, live: readonly FoundTask['task'][]): Promise<Words> {
  const head = { en: 'Which one? Send /cancel with its id:', zh: '请注明要取消的任务编号，例如 /cancel 编号：' }[
    context.lang
  ];
  return joined([head, ...live.map((task) => listLine(context, task, tx.now))], '\n');
}

async function retryOne(tx: Tx, context: CommandContext, { id, task }: FoundTask): Promise<string> {
  const { lang, rooms } = context;
  const name = nameOf(context, task);
  const answer = (await retryTasks(tx, [{ id, by: actorOf(context) }], rooms.emitTasks))[0]!;
  switch (answer.result) {
    case 'queued':
      if (answer.waits)
        return { en: `It waits for other errands again: ${name}.`, zh: `重新等待其他任务：${name}。` }[lang];
      return { en: `Once more: ${name}.`, zh: `重新运行：${name}。` }[lang];
    case 'refused': {
      if (answer.because === 'needs')
        return {
          en: `${name} needs other errands: it goes on by itself once they have succeeded.`,
          zh: `${name} 依赖其他任务：它们成功后会自动继续。`,
        }[lang];
      const state = stateWord(lang, answer.status);
      return { en: `There is nothing to retry: ${name} is ${state}.`, zh: `无需重试：${name} ${state}。` }[lang];
    }
    case 'unknown':
      return noSuchTask(context, task.taskId);
  }
}
