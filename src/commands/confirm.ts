import type { Route } from '../channels/channel.ts';
import { joined, type Words } from '../rich-text.ts';
import type { Lang } from '../sessions/lang.ts';
import type { Tx } from '../store/tx.ts';
import { duration, oneLine } from '../text.ts';
import type { Command, CommandContext, Doubt } from './command.ts';
import { type AskedRow, askAbout, openQuestions, takeQuestion } from './confirm-queries.ts';

/** Answering whether an old or changed message is to be acted on: /yes, /no. */

/** A question is open for a day. */
export const OPEN_MS = 86_400_000;
/** So many open questions are looked at. */
const MOST_OPEN = 50;
const LISTED = 10;

const yes: Command = {
  name: 'yes',
  aliases: ['是'],
  right: 'talk',
  usage: '/yes [id | all]',
  help: {
    en: 'run what I have asked about: an old or a changed message',
    zh: '确认执行我询问过的消息（较旧或已修改）',
  },
  run: (tx, context) => decide(tx, context, yes),
};

const no: Command = {
  name: 'no',
  aliases: ['否'],
  right: 'talk',
  usage: '/no [id | all]',
  help: { en: 'do not run what I have asked about', zh: '不执行我询问过的消息' },
  run: (tx, context) => decide(tx, context, no),
};

export const confirmCommands: readonly Command[] = [yes, no];

/** Asks the person instead of acting, and answers the question; /yes takes it up from there. */
export async function ask(
  tx: Tx,
  { inboxId, lang, rooms, text }: Pick<CommandContext, 'inboxId' | 'lang' | 'rooms' | 'text'>,
  doubt: Doubt,
): Promise<string> {
  await tx.run(askAbout, { id: inboxId, now: tx.now });
  const id = rooms.ids.encode(inboxId);
  const shown = oneLine(text, 200);
  const choice = { en: `/yes ${id} runs it, /no ${id} does not.`, zh: `执行请发 /yes ${id}，不执行请发 /no ${id}。` }[
    lang
  ];
  if (doubt.because === 'edited')
    return {
      en: `You changed a message to “${shown}”. Run it with the new text? ${choice}`,
      zh: `您把消息改成了“${shown}”。要按新内容执行吗？${choice}`,
    }[lang];
  const age = duration(lang, doubt.ageMs);
  return {
    en: `This is ${age} old: “${shown}”. Run it now? ${choice}`,
    zh: `这是 ${age}前的消息：“${shown}”。现在还要执行吗？${choice}`,
  }[lang];
}

async function decide(tx: Tx, context: CommandContext, command: Command): Promise<Words | undefined> {
  const { lang, doubt, rest, rooms, sessionKey, speaker } = context;
  if (doubt?.because === 'old') return itselfOld(lang, command);
  const since = tx.now - OPEN_MS;
  const open = await tx.all(openQuestions, { session: sessionKey, sender: speaker.userId, since, limit: MOST_OPEN });
  const all = /^(all|全部)$/i.test(rest);
  if (rest === '' && open.length > 1) return whichOne(context, open, command);
  const id = rooms.ids.decode(rest);
  const meant = all || rest === '' ? open : open.filter((row) => row.id === id);
  if (meant.length === 0)
    return { en: 'There is no open question of mine to answer.', zh: '没有等待您回答的问题。' }[lang];
  const replies: Words[] = [];
  for (const row of meant) {
    // Taken first: what is answered once is answered, whatever comes of it.
    const reason = command === yes ? 'asked_yes' : 'asked_no';
    if ((await tx.all(takeQuestion, { id: row.id, reason })).length === 0 || command === no) continue;
    const reply = await context.actOn(tx, { id: row.id, text: row.text, route: JSON.parse(row.route) as Route });
    if (reply !== undefined) replies.push(reply);
  }
  if (command === no) return { en: 'Good, I leave it.', zh: '好的，不执行。' }[lang];
  return replies.length === 0 ? undefined : joined(replies, '\n');
}

function whichOne({ lang, rooms }: CommandContext, open: readonly AskedRow[], command: Command): string {
  const head = { en: `Which one? ${command.usage}`, zh: `请注明是哪一个：${command.usage}` }[lang];
  const lines = open.slice(0, LISTED).map((row) => `• ${rooms.ids.encode(row.id)} ${oneLine(row.text, 80)}`);
  return [head, ...lines, ...(open.length > LISTED ? ['…'] : [])].join('\n');
}

/** An answer that waited as long as its question did is no answer to what is known now. */
function itselfOld(lang: Lang, { name }: Command): string {
  return {
    en: `That answer reached me late. Send /${name} again if it still holds.`,
    zh: `这个回答到得太晚。如果仍然有效，请重新发送 /${name}。`,
  }[lang];
}
