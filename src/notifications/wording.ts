import type { RichText } from '../channels/channel.ts';
import type { Texts } from '../flows/template-model.ts';
import { readMarkdown } from '../markdown.ts';
import { bold, code, joined, pre, rich, richHeadAndTail, type Words } from '../rich-text.ts';
import type { Lang } from '../sessions/lang.ts';
import { reasonWords } from '../tasks/reason-words.ts';
import type { FinalState, TaskState } from '../tasks/states.ts';
import type { TaskEnd } from '../tasks/task.ts';
import { duration, oneLine, printable, sentenceOf } from '../text.ts';

/** What a message is about, in the words of the person who asked. */
export interface Subject {
  lang: Lang;
  /** The template's title in this language, and the task's label where it has one; see `titleFor`. */
  title: string;
  /** The task's public id, as it is typed in commands. */
  id: string;
  /** How its summary is to be read; absent: as it is. */
  summary?: 'plain' | 'markdown' | undefined;
}

/** Characters of a program's summary in one message; the rest is found with /task. */
export const SUMMARY_LIMIT = 3_500;

/** The title of the template; its id where it has none; the label behind it. */
export function titleFor(title: string | undefined, template: string, label: string | null): string {
  const name = title ?? template;
  return oneLine(label === null || label === name ? name : `${name} · ${label}`, 120);
}

/** The one message that tells how a task ended. */
export function finalText(subject: Subject, state: FinalState, end: TaskEnd): RichText {
  const summary = summaryOf(subject, state === 'failed' ? withoutStack(end.summary ?? '') : (end.summary ?? ''));
  const parts = [headline(subject, state, end), summary, hintOf(subject, state, end)].filter(({ text }) => text !== '');
  return joined(parts, '\n');
}

/** How a task ended, in one line. */
export function headline(subject: Subject, state: FinalState, end: TaskEnd): RichText {
  return HEADLINES[state](subject, end);
}

/** A task that waits for a person: blocked (quota, permission), with a question, or for the reason that the engine gives. */
export function blockedText(
  subject: Subject,
  summary: string,
  question: boolean,
  reason: string | null = null,
): RichText {
  const { lang, id } = subject;
  const title = bold(subject.title);
  const what = oneLine(summary, 1_000) || reasonWords(lang, reason) || PLEASE_LOOK[lang];
  const headline = question
    ? { en: rich`✋ ${title} has a question: ${what}`, zh: rich`✋ ${title} 有个问题：${what}` }
    : { en: rich`✋ ${title} needs you: ${what}`, zh: rich`✋ ${title} 需要您处理：${what}` };
  const onward = reason === 'lost_ask' ? { en: 'to run it again', zh: '重新运行' } : { en: 'to go on', zh: '继续' };
  return rich`${headline[lang]}\n${code(`/retry ${id}`)} ${onward[lang]} · ${code(`/cancel ${id}`)}`;
}

/** A change on the way, or undefined where it means nothing to a person (leases, and what other messages tell). */
export function stateText(
  subject: Subject,
  from: TaskState,
  to: TaskState,
  reason: string | null,
): RichText | undefined {
  const { lang } = subject;
  const title = bold(subject.title);
  if (to === 'running') return { en: rich`▶️ ${title} is running`, zh: rich`▶️ ${title} 正在运行` }[lang];
  if (to === 'paused') return { en: rich`⏸ ${title} is paused`, zh: rich`⏸ ${title} 已暂停` }[lang];
  if (to !== 'queued' || reason === 'needs_met') return undefined;
  if (from === 'paused') return { en: rich`▶️ ${title} goes on`, zh: rich`▶️ ${title} 继续` }[lang];
  const why = againBecause(lang, reason);
  return { en: rich`🔁 ${title} is queued again${why}`, zh: rich`🔁 ${title} 重新排队${why}` }[lang];
}

/** How far a task is, as its program says. */
export function progressText({ lang, title }: Subject, percent: number | null, message: string | null): RichText {
  const parts = [percent === null ? '' : `${Math.round(percent)} %`, message === null ? '' : oneLine(message, 500)];
  const said = parts.filter((part) => part !== '').join(lang === 'zh' ? '，' : ', ');
  return rich`⏳ ${bold(title)}${lang === 'zh' ? '：' : ' — '}${said === '' ? '…' : said}`;
}

/** How a task died, for a sentence that begins with its name: `failed after 3 tries: no such room`. */
export function deathWords(lang: Lang, state: DeadState, end: Death): string {
  return DEATHS[state](lang, end);
}

export type DeadState = Exclude<FinalState, 'succeeded' | 'cancelled'>;
export type Death = Pick<TaskEnd, 'error' | 'reason' | 'attempt'> & { errorZh?: string | null };

const PLEASE_LOOK: Texts = { en: 'please have a look', zh: '请查看' };

const DEATHS: Record<DeadState, (lang: Lang, end: Death) => string> = {
  failed: (lang, end) => {
    const why = whyFailed(lang, end);
    return { en: `failed${tries(lang, end)}: ${why}`, zh: `失败${tries(lang, end)}：${why}` }[lang];
  },
  timed_out: (lang, end) => ({ en: `timed out${tries(lang, end)}`, zh: `超时${tries(lang, end)}` })[lang],
  lost: (lang, end) => {
    if (end.reason === 'never_started') {
      return {
        en: 'was lost: machine after machine stopped answering before it had begun',
        zh: '失联：每台领取它的机器都在开始之前就没有响应了',
      }[lang];
    }
    return {
      en: `was lost${tries(lang, end)}: the machine it ran on stopped answering, so its result is unknown`,
      zh: `失联${tries(lang, end)}：运行它的机器没有响应，结果未知`,
    }[lang];
  },
};

/** The error is what its last run said; where the engine has lost its patience, that comes first. */
function whyFailed(lang: Lang, { error, errorZh, reason }: Death): string {
  const said = sentenceOf(lang === 'zh' ? (errorZh ?? error) : error);
  const words = reasonWords(lang, reason);
  // The error names the breaker, which means nothing to a person.
  if (reason === 'breaker_open') return words!;
  if (reason === 'rate_limited_too_long' && said !== '')
    return lang === 'zh' ? `${words}（${said}）` : `${words} (${said})`;
  return said || words || { en: 'no reason was given', zh: '没有说明原因' }[lang];
}

const HEADLINES: Record<FinalState, (subject: Subject, end: TaskEnd) => RichText> = {
  succeeded: ({ lang, title }, end) => {
    const took = duration(lang, end.tookMs);
    const late = { en: ' (finished before it could be cancelled)', zh: '（取消之前已经完成）' };
    const name = bold(title);
    const behind = end.finishedBeforeCancel ? late[lang] : '';
    return lang === 'zh' ? rich`✅ ${name} 已完成，用时 ${took}${behind}` : rich`✅ ${name} — done in ${took}${behind}`;
  },
  failed: ({ lang, title }, end) => rich`❌ ${bold(title)} ${deathWords(lang, 'failed', end)}`,
  timed_out: ({ lang, title }, end) => rich`⏱ ${bold(title)} ${deathWords(lang, 'timed_out', end)}`,
  cancelled: ({ lang, title }) => {
    const name = bold(title);
    return { en: rich`🚫 ${name} was cancelled`, zh: rich`🚫 ${name} 已取消` }[lang];
  },
  lost: ({ lang, title }, end) => rich`❓ ${bold(title)} ${deathWords(lang, 'lost', end)}`,
};

function tries(lang: Lang, { attempt }: Death): string {
  if (attempt < 2) return '';
  return { en: ` after ${attempt} tries`, zh: `（已尝试 ${attempt} 次）` }[lang];
}

function againBecause(lang: Lang, reason: string | null): string {
  const words = reasonWords(lang, reason);
  if (words === undefined) return '';
  return lang === 'zh' ? `（${words}）` : ` (${words})`;
}

/** Stack frames of Node and Python say nothing to a person; /logs has them. */
function withoutStack(text: string): string {
  const isFrame = (line: string) => /^\s+at \S/.test(line) || /^\s*File ".*", line \d+/.test(line);
  return text
    .split('\n')
    .filter((line) => !isFrame(line))
    .join('\n');
}

function summaryOf({ lang, id, summary: format }: Subject, summary: string): RichText {
  return richHeadAndTail(
    outputOf(summary, format),
    SUMMARY_LIMIT,
    (count) => ({ en: `… ${count} characters left out; /logs ${id}`, zh: `……省略 ${count} 个字符；/logs ${id}` })[lang],
  );
}

/**
 * What a program says: Markdown where its template says so, else as it is, in its columns where it has several lines; without what
 * could spoil a message.
 */
export function outputOf(summary: string, format: Subject['summary']): RichText {
  const text = printable(summary).trim();
  if (format === 'markdown') return readMarkdown(text);
  return text.includes('\n') ? pre(text) : { text };
}

/** How to go on, where there is something to do. What never ran has printed nothing. */
function hintOf({ id }: Subject, state: FinalState, end: TaskEnd): RichText {
  if (state === 'succeeded') return { text: '' };
  const hints: Words[] = [code(`/retry ${id}`), ...(end.attempt > 0 ? [code(`/logs ${id}`)] : [])];
  return joined(hints, ' · ');
}
