import type { RichText } from '../channels/channel.ts';
import type { Texts } from '../flows/template-model.ts';
import { outputOf, SUMMARY_LIMIT } from '../notifications/wording.ts';
import { bold, code, joined, rich, richHeadAndTail, type Words } from '../rich-text.ts';
import type { Lang } from '../sessions/lang.ts';
import type { Tx } from '../store/tx.ts';
import type { Explanation } from '../tasks/explain.ts';
import { listTasks } from '../tasks/read.ts';
import { isFinal, type TaskState } from '../tasks/states.ts';
import type { RunRecord, TaskRecord } from '../tasks/task.ts';
import { duration, oneLine, sentenceOf } from '../text.ts';
import type { Command, CommandContext } from './command.ts';
import { findTask, idMissing, LIST_LIMIT, liveTasks, noSuchTask } from './task-lookup.ts';
import { ago, listLine, liveState, nameOf, stateWord } from './task-words.ts';

/** Looking at errands: /status, /tasks, /task. */
const RUNS_SHOWN = 5;

const status: Command = {
  name: 'status',
  aliases: ['状态'],
  right: 'talk',
  usage: '/status',
  help: { en: 'what runs and what waits here, and why', zh: '查看正在运行和等待的任务' },
  async run(tx, context) {
    const live = await liveTasks(tx, context);
    const notices = context.rooms.isDraining?.() ? [CLOSED[context.lang]] : [];
    if (live.length === 0) {
      const idle = {
        en: 'Nothing is running or waiting here. /tasks lists the last errands.',
        zh: '当前没有运行或等待中的任务。发送 /tasks 查看最近的任务。',
      }[context.lang];
      return joined([...notices, idle], '\n');
    }
    const shown = live.slice(0, LIST_LIMIT);
    const why = await whyQueued(tx, context, shown);
    const lines: Words[] = shown.map((task) => listLine(context, task, tx.now, why.get(task.taskId)));
    if (live.length > LIST_LIMIT) lines.push({ en: '… and more: /tasks', zh: '……还有更多：/tasks' }[context.lang]);
    return joined([...notices, ...lines], '\n');
  },
};

/** The first line of /status while the gateway is draining. */
const CLOSED: Texts = {
  en: '⏸ The gateway starts nothing new at the moment. New errands are accepted and wait.',
  zh: '⏸ 网关目前不启动新任务，新的请求会被受理并等待。',
};

const tasks: Command = {
  name: 'tasks',
  aliases: ['任务列表'],
  right: 'talk',
  usage: '/tasks',
  help: { en: 'the last errands of this conversation', zh: '本会话最近的任务' },
  async run(tx, context) {
    const found = await listTasks(tx, context.rooms.ids, { sessionKey: context.sessionKey, limit: LIST_LIMIT });
    if (found.length > 0)
      return joined(
        found.map((task) => listLine(context, task, tx.now)),
        '\n',
      );
    return {
      en: 'There were no errands here yet. /help says how to ask for one.',
      zh: '这里还没有任务。发送 /help 查看用法。',
    }[context.lang];
  },
};

const task: Command = {
  name: 'task',
  aliases: ['任务'],
  right: 'talk',
  usage: '/task <id>',
  help: { en: 'everything about one errand', zh: '查看一个任务的详情' },
  async run(tx, context) {
    if (context.rest === '') return idMissing(context, task.usage);
    const found = await findTask(tx, context, context.rest);
    if (!found) return noSuchTask(context, context.rest);
    const why = await whyQueued(tx, context, [found.task]);
    return card(context, found.task, tx.now, why.get(found.task.taskId));
  },
};

export const taskCommands: readonly Command[] = [status, tasks, task];

/** What keeps those of them that are queued, by their public ids. */
async function whyQueued(
  tx: Tx,
  { rooms }: CommandContext,
  shown: readonly TaskRecord[],
): Promise<Map<string, Explanation>> {
  const queued = shown.filter(({ status }) => status === 'queued').map(({ taskId }) => rooms.ids.decode(taskId)!);
  const why = queued.length === 0 ? [] : await rooms.why.explain(tx, queued);
  return new Map([...why].map(([id, explained]) => [rooms.ids.encode(id), explained]));
}

function card(context: CommandContext, shown: TaskRecord, now: number, why: Explanation | undefined): RichText {
  const { lang } = context;
  const lines: Words[] = [
    rich`${bold(nameOf(context, shown))} · ${code(shown.taskId)}`,
    `${LABELS.state[lang]}${stateOf(context, shown, now, why)}`,
    `${LABELS.asked[lang]}${ago(lang, now - shown.createdAt)}`,
    ...runLines(context, shown),
  ];
  const error = lang === 'zh' ? (shown.errorZh ?? shown.error) : shown.error;
  if (error !== undefined) lines.push(`${LABELS.error[lang]}${sentenceOf(error)}`);
  const summary = outputOf(shown.summary ?? '', context.rooms.templates.get(shown.template)?.summary);
  if (summary.text !== '')
    lines.push(
      '',
      richHeadAndTail(summary, SUMMARY_LIMIT, (count) => leftOut(context, count)),
    );
  const steps = nextSteps(shown);
  return joined(steps.length === 0 ? lines : [...lines, joined(steps.map(code), ' · ')], '\n');
}

function stateOf({ lang }: CommandContext, shown: TaskRecord, now: number, why: Explanation | undefined): string {
  if (!isFinal(shown.status)) return liveState(lang, shown, now, why);
  const took = duration(lang, shown.endedAt! - shown.createdAt);
  return { en: `${stateWord(lang, shown.status)} after ${took}`, zh: `${stateWord(lang, shown.status)}，用时 ${took}` }[
    lang
  ];
}

function runLines({ lang }: CommandContext, shown: TaskRecord): string[] {
  return shown.runs.slice(-RUNS_SHOWN).map((run) => {
    const head = {
      en: `Try ${run.attempt} on ${oneLine(run.agentId, 64)}: `,
      zh: `第 ${run.attempt} 次，${oneLine(run.agentId, 64)}：`,
    }[lang];
    return head + outcomeOf(lang, run);
  });
}

function outcomeOf(lang: Lang, run: RunRecord): string {
  if (run.outcome === undefined) return stateWord(lang, run.startedAt === undefined ? 'leased' : 'running');
  const words = OUTCOMES[run.outcome]?.[lang] ?? stateWord(lang, run.outcome as TaskState);
  if (run.startedAt === undefined || run.endedAt === undefined) return words;
  return `${words}${lang === 'zh' ? '，' : ', '}${duration(lang, run.endedAt - run.startedAt)}`;
}

/** Ways a run can end that are no states of a task. */
const OUTCOMES: Readonly<Record<string, Texts>> = {
  released: { en: 'given back', zh: '已退回' },
  blocked: { en: 'needs a person', zh: '需要人工处理' },
  needs_input: { en: 'asked a question', zh: '提出了问题' },
};

const LABELS = {
  state: { en: 'State: ', zh: '状态：' },
  asked: { en: 'Asked: ', zh: '提交：' },
  error: { en: 'Error: ', zh: '错误：' },
} as const;

function nextSteps({ status: state, taskId, runs, reason }: TaskRecord): string[] {
  const log = runs.length > 0 ? [`/logs ${taskId}`] : [];
  if (!isFinal(state))
    return [`/cancel ${taskId}`, ...(state === 'waiting' && reason !== 'needs' ? [`/retry ${taskId}`] : []), ...log];
  return [...(state === 'succeeded' ? [] : [`/retry ${taskId}`]), ...log];
}

function leftOut({ lang }: CommandContext, count: number): string {
  return { en: `… ${count} characters left out …`, zh: `……省略 ${count} 个字符……` }[lang];
}
