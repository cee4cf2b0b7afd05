import type { RichText } from '../channels/channel.ts';
import { bold, code, joined, rich, richHeadAndTail } from '../rich-text.ts';
import type { Lang } from '../sessions/lang.ts';
import type { FinalState } from '../tasks/states.ts';
import { duration, oneLine } from '../text.ts';
import { type Death, deathWords, outputOf, SUMMARY_LIMIT, type Subject } from './wording.ts';

/** What became of a flow that was asked for as a whole. */
export interface GraphEnd {
  lang: Lang;
  /** What the person asked for. */
  goal: string;
  status: 'finished' | 'failed' | 'cancelled';
  tookMs: number;
  /** Tasks by how they ended; `skipped` are those that never ran because of another's end. */
  counts: { succeeded: number; failed: number; cancelled: number; skipped: number };
  /** The first that did not succeed, without the skipped. */
  troubles: readonly Trouble[];
  /** What the last tasks, which no other needs, have said of their success. */
  results: readonly { title: string; summary: string; format?: Subject['summary'] }[];
}

export interface Trouble {
  /** Public id. */
  id: string;
  title: string;
  state: Exclude<FinalState, 'succeeded'>;
  end: Death;
}

/** The one message that tells how a flow ended whose tasks need one another. */
export function graphText(end: GraphEnd): RichText {
  const troubles = end.troubles.map((trouble) => troubleLine(end.lang, trouble));
  return joined([headline(end), ...troubles, ...resultsOf(end)], '\n');
}

/** A task that was skipped, where every change of every task is told. */
export function skippedText(subject: Subject, need: { id: string; title: string; state: FinalState }): RichText {
  const { lang } = subject;
  const [title, other, id] = [bold(subject.title), bold(need.title), code(need.id)];
  const ended = ENDED[need.state][lang];
  return {
    en: rich`⏭ ${title} was skipped: it needs ${other} (${id}), which ${ended}`,
    zh: rich`⏭ ${title} 已跳过：它依赖的 ${other}（${id}）${ended}`,
  }[lang];
}

type Texts = Readonly<Record<Lang, string>>;

const ENDED: Readonly<Record<FinalState, Texts>> = {
  succeeded: { en: 'has succeeded', zh: '已完成' },
  failed: { en: 'failed', zh: '失败' },
  timed_out: { en: 'timed out', zh: '超时' },
  cancelled: { en: 'was cancelled', zh: '已取消' },
  lost: { en: 'was lost', zh: '失联' },
};

const ICONS: Readonly<Record<GraphEnd['status'], string>> = { finished: '✅', failed: '❌', cancelled: '🚫' };

function headline({ lang, goal, status, tookMs, counts }: GraphEnd): RichText {
  const all = counts.succeeded + counts.failed + counts.cancelled + counts.skipped;
  const name = rich`${ICONS[status]} ${bold(oneLine(goal, 120))}`;
  const took = duration(lang, tookMs);
  if (status === 'finished')
    return {
      en: rich`${name} — ${all === 1 ? 'its task' : `all ${all} tasks`} done in ${took}`,
      zh: rich`${name}：${all} 个任务全部完成，用时 ${took}`,
    }[lang];
  const parts = [
    { en: `${counts.succeeded} of ${all} tasks done`, zh: `${all} 个任务中完成 ${counts.succeeded} 个` }[lang],
    ...PARTS.flatMap(([kind, words]) => (counts[kind] === 0 ? [] : [words[lang].replace('#', String(counts[kind]))])),
  ];
  const word = { failed: { en: 'failed', zh: '失败' }, cancelled: { en: 'was cancelled', zh: '已取消' } }[status][lang];
  return {
    en: rich`${name} ${word} after ${took}: ${parts.join(', ')}`,
    zh: rich`${name} ${word}，用时 ${took}：${parts.join('，')}`,
  }[lang];
}

const PARTS: readonly (readonly [keyof GraphEnd['counts'], Texts])[] = [
  ['failed', { en: '# failed', zh: '失败 # 个' }],
  ['cancelled', { en: '# cancelled', zh: '取消 # 个' }],
  ['skipped', { en: '# skipped', zh: '跳过 # 个' }],
];

function troubleLine(lang: Lang, { id, title, state, end }: Trouble): RichText {
  const words = state === 'cancelled' ? ENDED.cancelled[lang] : deathWords(lang, state, end);
  return rich`· ${bold(title)} ${words} — ${code(`/retry ${id}`)}`;
}

function resultsOf({ lang, results }: GraphEnd): RichText[] {
  const limit = Math.floor(SUMMARY_LIMIT / Math.max(1, results.length));
  return results.map(({ title, summary, format }) => {
    const leftOut = (count: number) => LEFT_OUT[lang].replace('#', String(count));
    const output = richHeadAndTail(outputOf(summary, format), limit, leftOut);
    return results.length === 1 ? output : rich`${bold(title)}: ${output}`;
  });
}

const LEFT_OUT: Texts = { en: '… # characters left out', zh: '……省略 # 个字符' };
