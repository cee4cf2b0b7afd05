import type { Command } from 'commander';
import type { Act, Context } from './context.ts';
import { type Lang, langOf } from './lang.ts';
import { displayWidth, localTime, oneLine } from './table.ts';

interface Trace {
  key: string;
  entries: { at: number; kind: string; id: string; text: string; textZh: string }[];
  truncated: boolean;
}

/** `errand tasks trace` */
export function traceCommand(tasks: Command, act: Act): void {
  tasks
    .command('trace <key>')
    .description('tell all that a business key, an effect key or an id touched, from the message to the receipt')
    .addHelpText('after', '\nExamples:\n  errand tasks trace hotel-checkin:302:2026-05-04\n  errand tasks trace k3f9')
    .action(act(trace));
}

async function trace({ api, env, show }: Context, key: string): Promise<void> {
  const found = await api().get<Trace>('/api/trace', { key });
  const lang = langOf(env);
  show(found, () =>
    [...found.entries.map((entry) => lineOf(entry, lang)), ...(found.truncated ? [MORE[lang]] : [])].join('\n'),
  );
}

/** Wide enough for the longest kind. */
const KIND_COLUMNS = 8;
const TEXT_COLUMNS = 240;

const MORE = { en: '… there are more tasks with this key', zh: '……还有更多使用此键的任务' };
const KINDS_ZH: Readonly<Record<string, string>> = {
  message: '消息',
  errand: '请求',
  flow: '流程',
  task: '任务',
  run: '运行',
  effect: '副作用',
  delivery: '送达',
};

function lineOf({ at, kind, text, textZh }: Trace['entries'][number], lang: Lang): string {
  const shown = lang === 'zh' ? (KINDS_ZH[kind] ?? kind) : kind;
  const gap = ' '.repeat(Math.max(0, KIND_COLUMNS - displayWidth(shown)));
  return `${localTime(at)}  ${shown}${gap}  ${oneLine(lang === 'zh' ? textZh : text, TEXT_COLUMNS)}`;
}
