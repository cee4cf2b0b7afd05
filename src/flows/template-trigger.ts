/** A trigger such as `report {room} {guest}`: words that must be there, and places for arguments. */
export type TriggerPart = { readonly literal: string } | { readonly place: string };

export interface Word {
  readonly text: string;
  /** Offsets in the message. */
  readonly start: number;
  readonly end: number;
}

export interface TriggerMatch {
  /** Length of all literals: the longer, the more certain. */
  readonly certainty: number;
  readonly args: Readonly<Record<string, string>>;
  /** Places at the end for which the message had no words. */
  readonly missing: readonly string[];
}

/** First words of commands, which are answered before any trigger is looked at (contract, section 7, and their Chinese names). */
export const COMMAND_WORDS: ReadonlySet<string> = new Set(
  (
    'help start whoami run status tasks task logs why cancel retry stop flows flow queue notify approve reject answer ' +
    'cron agents dead resend pair access yes no 帮助 开始 我是谁 运行 状态 任务列表 任务 日志 为什么 取消 重试 死信 配对 权限 是 否'
  ).split(' '),
);

/** The parts of a trigger, or the sentence that says what is wrong with it. */
export function parseTrigger(trigger: string): TriggerPart[] | string {
  const parts: TriggerPart[] = [];
  for (const { text } of wordsOf(trigger)) {
    const place = /^\{([a-z][a-z0-9_]*)\}$/.exec(text)?.[1];
    if (place === undefined && /[{}]/.test(text)) return `has ${text}: a place is a word of its own, such as {name}`;
    if (place !== undefined && parts.some((part) => 'place' in part && part.place === place))
      return `has {${place}} twice`;
    parts.push(place === undefined ? { literal: folded(text) } : { place });
  }
  const first = parts[0];
  if (!first || !('literal' in first)) return 'must begin with a word that is no place, or every message would match';
  const command = /^\/(.+)$/.exec(first.literal)?.[1];
  if (command !== undefined && COMMAND_WORDS.has(command))
    return `begins with /${command}, which is a command of its own`;
  return parts;
}

/** The words of a message; any Unicode white space separates them. */
export function wordsOf(message: string): Word[] {
  return [...message.matchAll(/[^\s\p{White_Space}]+/gu)].map((match) => ({
    text: match[0],
    start: match.index,
    end: match.index + match[0].length,
  }));
}

/**
 * Compares a message with a trigger. Literals match whatever their case or width; every place takes one word, the last one all words
 * that are left, as they were written. Undefined: no match.
 */
export function matchParts(
  parts: readonly TriggerPart[],
  message: string,
  words: readonly Word[],
): TriggerMatch | undefined {
  const said = align(parts, message, words);
  if (!said) return undefined;
  const args: Record<string, string> = {};
  const missing: string[] = [];
  for (const [index, part] of parts.entries()) {
    const text = said[index];
    if ('literal' in part) {
      if (text === undefined || !sameWord(part.literal, text, index === 0)) return undefined;
    } else if (text === undefined) missing.push(part.place);
    else args[part.place] = text;
  }
  return { certainty: certaintyOf(parts), args, missing };
}

/** Same text whatever its width (full-width letters, ligatures) and case. */
export function folded(text: string): string {
  return text.normalize('NFKC').toLowerCase();
}

/** What of the message falls to each part; shorter than the parts where words are missing at the end. */
function align(parts: readonly TriggerPart[], message: string, words: readonly Word[]): string[] | undefined {
  const last = parts.findLastIndex((part) => 'place' in part);
  const after = parts.length - 1 - last;
  if (words.length <= parts.length) return words.map((word) => word.text);
  if (last < 0) return undefined;
  const rest = message.slice(words[last]!.start, words[words.length - 1 - after]!.end);
  const tail = after === 0 ? [] : words.slice(-after);
  return [...words.slice(0, last).map((word) => word.text), rest, ...tail.map((word) => word.text)];
}

/** In groups some platforms write `/report@bot`. */
function sameWord(literal: string, word: string, isFirst: boolean): boolean {
  const text = folded(word);
  return text === literal || (isFirst && literal.startsWith('/') && text.startsWith(`${literal}@`));
}

function certaintyOf(parts: readonly TriggerPart[]): number {
  return parts.reduce((sum, part) => sum + ('literal' in part ? part.literal.length : 0), 0);
}
