import type { RichText } from '../channels/channel.ts';
import type { Texts } from '../flows/template-model.ts';
import { titleFor } from '../notifications/wording.ts';
import { bold, code, rich } from '../rich-text.ts';
import type { Lang } from '../sessions/lang.ts';
import type { Explanation } from '../tasks/explain.ts';
import { reasonWords } from '../tasks/reason-words.ts';
import { isFinal, type TaskState } from '../tasks/states.ts';
import type { TaskRecord } from '../tasks/task.ts';
import { duration, oneLine } from '../text.ts';
import type { CommandContext } from './command.ts';

/** Tasks in the words of a chat: short, in the person's language, pure. */
const STATES: Record<TaskState, { icon: string } & Texts> = {
  waiting: { icon: '✋', en: 'waits for you', zh: '等您处理' },
  queued: { icon: '⏳', en: 'queued', zh: '排队中' },
  leased: { icon: '▶️', en: 'starting', zh: '正在启动' },
  running: { icon: '▶️', en: 'running', zh: '运行中' },
  paused: { icon: '⏸', en: 'paused', zh: '已暂停' },
  succeeded: { icon: '✅', en: 'done', zh: '已完成' },
  failed: { icon: '❌', en: 'failed', zh: '失败' },
  timed_out: { icon: '⏱', en: 'timed out', zh: '超时' },
  cancelled: { icon: '🚫', en: 'cancelled', zh: '已取消' },
  lost: { icon: '❓', en: 'lost', zh: '失联' },
};

export function stateWord(lang: Lang, state: TaskState): string {
  return STATES[state][lang];
}

/** `Report a check-in (302, Ada)`: the title and the values that tell one errand from the next. */
export function nameOf({ lang, rooms }: CommandContext, task: TaskRecord): string {
  const title = titleFor(rooms.templates.get(task.template)?.title[lang], task.template, task.label ?? null);
  const values = Object.values(task.args)
    .map(String)
    .filter((value) => value !== '')
    .join(', ');
  return values === '' ? title : `${title} (${oneLine(values, 60)})`;
}

/** One line of a list: `✅ k7q2 Hello (Ada) — done, 5 min ago`. @param why what keeps it, where that was asked */
export function listLine(context: CommandContext, task: TaskRecord, now: number, why?: Explanation): RichText {
  const { lang } = context;
  const state = isFinal(task.status)
    ? `${STATES[task.status][lang]}${COMMA[lang]}${ago(lang, now - task.endedAt!)}`
    : liveState(lang, task, now, why);
  return rich`${STATES[task.status].icon} ${code(task.taskId)} ${bold(nameOf(context, task))} — ${state}`;
}

/** What a live task does or waits for, and why. */
export function liveState(lang: Lang, task: TaskRecord, now: number, why?: Explanation): string {
  const asked = task.cancelRequestedAt === undefined ? '' : { en: ', being cancelled', zh: '，正在取消' }[lang];
  switch (task.status) {
    case 'running':
      return `${STATES.running[lang]} ${duration(lang, now - (task.startedAt ?? now))}${progressOf(lang, task)}${asked}`;
    case 'queued':
      return why && !OF_ITS_OWN.has(why.reason) ? why.text[lang].replace(/[.。]$/, '') : waitOf(lang, task, now);
    case 'waiting': {
      if (task.reason === 'needs') return { en: 'waits for other errands', zh: '等待其他任务完成' }[lang];
      const what = task.question?.prompt ?? task.summary ?? reasonWords(lang, task.reason ?? null) ?? '';
      return what === '' ? STATES.waiting[lang] : `${STATES.waiting[lang]}${COLON[lang]}${oneLine(what, 200)}`;
    }
    default:
      return STATES[task.status][lang] + asked;
  }
}

/** `5 min ago`, `5 分前`. */
export function ago(lang: Lang, ms: number): string {
  return { en: `${duration('en', ms)} ago`, zh: `${duration('zh', ms)}前` }[lang];
}

/** Waits that the row of the task tells; a line of a list has shorter words for them. */
const OF_ITS_OWN: ReadonlySet<string> = new Set(['scheduled', 'retry_wait', 'rate_limit_wait']);
const COMMA: Texts = { en: ', ', zh: '，' };
const COLON: Texts = { en: ': ', zh: '：' };

function progressOf(lang: Lang, { progress }: TaskRecord): string {
  const parts = [
    progress?.percent == null ? '' : `${Math.round(progress.percent)} %`,
    oneLine(progress?.message ?? '', 120),
  ];
  return parts
    .filter((part) => part !== '')
    .map((part) => COMMA[lang] + part)
    .join('');
}

function waitOf(lang: Lang, task: TaskRecord, now: number): string {
  const why = reasonWords(lang, task.reason ?? null);
  const because = why === undefined ? '' : lang === 'zh' ? `（${why}）` : ` (${why})`;
  if (task.runAt <= now) return { en: 'waits for a free machine', zh: '等待空闲的机器' }[lang] + because;
  const left = duration(lang, task.runAt - now);
  return { en: `starts in ${left}`, zh: `${left}后开始` }[lang] + because;
}
