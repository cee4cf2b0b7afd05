import { type CommandContext, type Doubt, parseCommand } from '../commands/command.ts';
import { ask } from '../commands/confirm.ts';
import { COMMANDS, findCommand, suggestCommand } from '../commands/registry.ts';
import { startFromText, startsErrand } from '../commands/run.ts';
import { idShown, roleText } from '../notifications/refusals.ts';
import type { Words } from '../rich-text.ts';
import type { Lang } from '../sessions/lang.ts';
import { mayTell, RIGHT_MS } from '../sessions/refusals.ts';
import { may } from '../sessions/rights.ts';
import type { Tx } from '../store/tx.ts';
import { oneLine } from '../text.ts';
import { refused, type Verdict } from './verdict.ts';

/** The longest message that is acted on, characters. */
const TEXT_LIMIT = 8_000;

type Asked = Omit<CommandContext, 'rest' | 'commands' | 'actOn'>;

/**
 * Acts on the message of a paired person in an allowed chat and answers what to say, if anything: a command, else an errand whose
 * trigger matches, else one line that helps.
 */
export async function answer(tx: Tx, asked: Asked): Promise<Verdict> {
  const { doubt, lang, text } = asked;
  if (text.length > TEXT_LIMIT) return said(tooLong(lang));
  const given = parseCommand(text);
  const command = given && findCommand(given.name);
  const context = { ...asked, commands: COMMANDS, actOn: actOn(asked) };
  if (given && command) {
    if (!may(asked.speaker.role, command.right)) return refuseRole(tx, asked, command.name);
    // Looking at things harms nobody, however old the question is.
    if (doubt && command.right !== 'talk') return question(tx, asked, doubt);
    return said(await command.run(tx, { ...context, rest: given.rest }));
  }
  if (doubt && startsErrand(asked)) return question(tx, asked, doubt);
  const started = await startFromText(tx, { ...context, rest: text });
  if (started) return said(started.text);
  if (doubt?.because === 'edited') return said(undefined);
  return said(given ? unknownCommand(lang, given.name) : notUnderstood(lang));
}

/** A command that also works where the group is not allowed yet: the one that allows it. */
export function isForClosedGroups(text: string): boolean {
  const given = parseCommand(text);
  return given !== undefined && findCommand(given.name)?.inClosedGroups === true;
}

function unknownCommand(lang: Lang, name: string): string {
  const shown = oneLine(name, 32);
  const near = suggestCommand(name);
  return {
    en: `I do not know /${shown}.${near === undefined ? '' : ` Did you mean /${near}?`} /help lists what I can do.`,
    zh: `没有 /${shown} 这个命令。${near === undefined ? '' : `您是不是要找 /${near}？`}发送 /help 查看用法。`,
  }[lang];
}

/** The same person, on an earlier message of theirs that they were asked about. */
function actOn(asked: Asked): CommandContext['actOn'] {
  return async (tx, { id, text, route }) =>
    (await answer(tx, { ...asked, inboxId: id, text: text.trim(), route, doubt: undefined })).reply;
}

async function question(tx: Tx, asked: Asked, doubt: Doubt): Promise<Verdict> {
  return { status: 'done', reason: 'asked', reply: await ask(tx, asked, doubt) };
}

/** Who goes on trying the same is told once in a while. */
async function refuseRole(tx: Tx, { lang, route, speaker }: Asked, name: string): Promise<Verdict> {
  const { channel, account } = route;
  const whom = `user:${speaker.userId}:role:${name}`;
  if (!(await mayTell(tx, [{ channel, account, whom, everyMs: RIGHT_MS }]))) return refused('role', undefined);
  return refused('role', roleText(lang, name, idShown(channel, speaker.userId)));
}

function said(reply: Words | undefined): Verdict {
  return { status: 'done', reason: null, reply };
}

function notUnderstood(lang: Lang): string {
  return {
    en: 'I did not find an errand for that. /help lists what I can do.',
    zh: '没有找到对应的任务。发送 /help 查看用法。',
  }[lang];
}

function tooLong(lang: Lang): string {
  return {
    en: `That message is too long for me: at most ${TEXT_LIMIT} characters.`,
    zh: `消息太长了，最多 ${TEXT_LIMIT} 个字符。`,
  }[lang];
}
