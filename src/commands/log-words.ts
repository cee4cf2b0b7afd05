import type { RichText } from '../channels/channel.ts';
import { SUMMARY_LIMIT } from '../notifications/wording.ts';
import { code, joined, pre, rich } from '../rich-text.ts';
import type { Lang } from '../sessions/lang.ts';
import type { LogChunk } from '../tasks/log-reading.ts';
import type { TaskState } from '../tasks/states.ts';
import { printable } from '../text.ts';
import { stateWord } from './task-words.ts';

/** Logs as a chat shows them: their end, safe, bounded; pure. */

const LOG_LINES = 40;

/** Pieces of a log as a chat may show them; a line between two runs says which try follows. */
export function logText(lang: Lang, chunks: readonly LogChunk[]): string {
  let text = '';
  let runId = chunks[0]?.runId;
  for (const chunk of chunks) {
    if (chunk.runId !== runId) {
      runId = chunk.runId;
      const mark = { en: `— try ${chunk.attempt} —`, zh: `— 第 ${chunk.attempt} 次 —` }[lang];
      text += `${text === '' || text.endsWith('\n') ? '' : '\n'}${mark}\n`;
    }
    text += printable(chunk.text);
  }
  return text.trimEnd();
}

/** The end of a log, whole lines where they fit, under a line that says so where something is left out. */
export function lastLines(lang: Lang, taskId: string, text: string): RichText {
  const lines = text.split('\n');
  const kept = lines.slice(-LOG_LINES).join('\n');
  const shown = kept.length <= SUMMARY_LIMIT ? kept : kept.slice(-SUMMARY_LIMIT).toWellFormed();
  if (shown.length === text.length) return pre(shown);
  const id = code(taskId);
  const head = { en: rich`… the end of what ${id} printed:`, zh: rich`……${id} 输出的末尾：` }[lang];
  return rich`${head}\n${pre(shown)}`;
}

/** The message of a follow that is changed as lines come. @param status the state of a task that is over, else undefined */
export function liveText(lang: Lang, taskId: string, text: string, status: TaskState | undefined): RichText {
  const foot = status
    ? { en: `■ ${taskId}: ${stateWord('en', status)}`, zh: `■ ${taskId}：${stateWord('zh', status)}` }[lang]
    : { en: `▶️ ${taskId} goes on …`, zh: `▶️ ${taskId} 运行中……` }[lang];
  return text === '' ? { text: foot } : joined([lastLines(lang, taskId, text), foot], '\n');
}

/** Under the last message of a follow that may not go on. */
export function moreText(lang: Lang, taskId: string): string {
  return { en: `… I stop here; /logs ${taskId} shows the end.`, zh: `……到此为止，发送 /logs ${taskId} 查看后续输出。` }[
    lang
  ];
}
