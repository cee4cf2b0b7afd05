/** One message that had waited too long. */
export interface DigestEntry {
  readonly kind: string;
  readonly text: string;
  /** Public id of its task. */
  readonly taskId?: string;
}

/** Lines of one list; more are counted. */
const MOST_LINES = 50;
const LINE_CHARS = 100;

/** One message for many that could not be sent in time: how many, and a line of each. In Chinese where the messages are. */
export function digestText(entries: readonly DigestEntry[]): string {
  const isChinese = entries.some(({ text }) => /\p{Script=Han}/u.test(text));
  const shown = entries.slice(0, MOST_LINES);
  const rest = entries.length - shown.length;
  const lines = [titleOf(entries, isChinese), ...shown.map(lineOf)];
  if (rest > 0) lines.push(isChinese ? `…… 还有 ${rest} 条：/tasks` : `… and ${rest} more: /tasks`);
  return lines.join('\n');
}

function titleOf(entries: readonly DigestEntry[], isChinese: boolean): string {
  const areResults = entries.every(({ kind }) => kind === 'final');
  if (isChinese) return `你不在的时候：${entries.length} 条${areResults ? '结果' : '消息'}`;
  return `While you were away: ${entries.length} ${areResults ? 'results' : 'messages'}`;
}

function lineOf({ text, taskId }: DigestEntry): string {
  const [first = ''] = text.trim().split('\n');
  const chars = [...first];
  const said = chars.length > LINE_CHARS ? `${chars.slice(0, LINE_CHARS - 1).join('')}…` : first;
  return taskId === undefined ? `• ${said}` : `• ${said} — /task ${taskId}`;
}
