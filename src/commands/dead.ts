import type { RichText } from '../channels/channel.ts';
import { type DeadState, deathWords, titleFor } from '../notifications/wording.ts';
import { bold, code, joined, rich, type Words } from '../rich-text.ts';
import type { Lang } from '../sessions/lang.ts';
import type { Tx } from '../store/tx.ts';
import { discardLetters, type LetterAnswer, replayLetters } from '../tasks/dead-letters.ts';
import { type LetterRow, selectLetters } from '../tasks/dead-letters-queries.ts';
import type { LetterState } from '../tasks/states.ts';
import { oneLine } from '../text.ts';
import { actorOf, type Command, type CommandContext } from './command.ts';
import { type FoundTask, findToChange, LIST_LIMIT } from './task-lookup.ts';
import { ago, nameOf } from './task-words.ts';

/** Errands that ended without success and wait for a decision: /dead. */
const dead: Command = {
  name: 'dead',
  aliases: ['死信'],
  right: 'run',
  usage: '/dead [all | replay <id> | discard <id> [reason]]',
  help: { en: 'errands that failed for good; run one again or put it away', zh: '查看最终失败的任务；重新运行或作废' },
  async run(tx, context) {
    const [, word = '', id, reason = ''] = /^(\S*)(?:\s+(\S+))?(?:\s+([\s\S]+))?$/.exec(context.rest) ?? [];
    const verb = WORDS.get(word.toLowerCase());
    if (word === '') return list(tx, context, context.sessionKey);
    if (verb === 'all' && id === undefined && context.speaker.role === 'admin') return list(tx, context, undefined);
    const isDecision = (verb === 'replay' && reason === '') || verb === 'discard';
    if (!isDecision || id === undefined)
      return { en: `That is not how it works: ${dead.usage}`, zh: `用法：${dead.usage}` }[context.lang];
    const found = await findToChange(tx, context, id);
    return typeof found === 'string' ? found : decide(tx, context, verb, found, reason);
  },
};

export const deadCommands: readonly Command[] = [dead];

const WORDS: ReadonlyMap<string, 'all' | 'replay' | 'discard'> = new Map([
  ['all', 'all'],
  ['全部', 'all'],
  ['replay', 'replay'],
  ['重放', 'replay'],
  ['discard', 'discard'],
  ['作废', 'discard'],
]);
const MAX_REASON = 500;

async function list(tx: Tx, context: CommandContext, sessionKey: string | undefined): Promise<Words> {
  const { lang } = context;
  const letters = await selectLetters(tx, { state: 'dead', sessionKey, limit: LIST_LIMIT + 1 });
  if (letters.length === 0) return { en: 'No errand has failed for good.', zh: '没有最终失败的任务。' }[lang];
  const lines: Words[] = letters.slice(0, LIST_LIMIT).map((letter) => letterLine(context, letter, tx.now));
  if (letters.length > LIST_LIMIT) lines.push('…');
  return joined([...lines, HINT[lang]], '\n');
}

const HINT = {
  en: '/dead replay <id> runs one again, /dead discard <id> puts it away.',
  zh: '/dead replay <id> 重新运行，/dead discard <id> 作废。',
} as const;

/** `💀 k7q2 Hello failed after 3 tries: no such room (5 min ago)` */
function letterLine({ lang, rooms }: CommandContext, letter: LetterRow, now: number): RichText {
  const title = titleFor(rooms.templates.get(letter.template)?.title[lang], letter.template, letter.label);
  const words = deathWords(lang, letter.status as DeadState, letter);
  const when = ago(lang, Math.max(0, now - letter.died_at));
  return rich`💀 ${code(rooms.ids.encode(letter.task_id))} ${bold(title)} ${words}${lang === 'zh' ? `（${when}）` : ` (${when})`}`;
}

async function decide(
  tx: Tx,
  context: CommandContext,
  verb: 'replay' | 'discard',
  { id, task }: FoundTask,
  reason: string,
): Promise<string> {
  const order = { id, by: actorOf(context) };
  const note = oneLine(reason, MAX_REASON) || null;
  const [answer] =
    verb === 'replay'
      ? await replayLetters(tx, [order], context.rooms.emitTasks)
      : await discardLetters(tx, [{ ...order, reason: note }]);
  return told(context.lang, nameOf(context, task), verb, answer!);
}

function told(lang: Lang, name: string, verb: 'replay' | 'discard', answer: LetterAnswer): string {
  switch (answer.result) {
    case 'done':
      return verb === 'replay'
        ? { en: `Once more: ${name}.`, zh: `重新运行：${name}。` }[lang]
        : { en: `Put away: ${name}.`, zh: `已作废：${name}。` }[lang];
    case 'refused':
      return DECIDED[answer.state][lang](name);
    case 'unknown':
      return { en: `${name} has not failed for good.`, zh: `${name} 没有最终失败。` }[lang];
  }
}

type Sentence = (name: string) => string;
const DECIDED: Record<LetterState, Record<Lang, Sentence>> = {
  dead: { en: (name) => `${name} waits for a decision.`, zh: (name) => `${name} 等待处理。` },
  replayed: { en: (name) => `${name} was already run again.`, zh: (name) => `${name} 已经重新运行过。` },
  recovered: {
    en: (name) => `${name} was run again and is done.`,
    zh: (name) => `${name} 已经重新运行并完成。`,
  },
  discarded: { en: (name) => `${name} was already put away.`, zh: (name) => `${name} 已经作废。` },
};
