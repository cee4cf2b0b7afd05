import { approveAndTell } from '../notifications/pairing.ts';
import { allowGroup, listAccess } from '../sessions/access.ts';
import { isRole } from '../sessions/rights.ts';
import type { Tx } from '../store/tx.ts';
import { duration, oneLine } from '../text.ts';
import { actorOf, type Command, type CommandContext } from './command.ts';

/** Letting people and groups in: /pair. */
const pair: Command = {
  name: 'pair',
  aliases: ['配对'],
  right: 'administer',
  usage: '/pair [approve <code> [viewer|operator|approver|admin] | group]',
  help: { en: 'who waits to be let in; let a person or this group in', zh: '查看等待配对的人；批准配对或开通本群' },
  inClosedGroups: true,
  async run(tx, context) {
    const [word = '', code, role = 'operator', ...more] = context.rest.split(/\s+/);
    if (word === '') return waiting(tx, context);
    if (word.toLowerCase() === 'group' && code === undefined) return openGroup(tx, context);
    if (word.toLowerCase() !== 'approve' || code === undefined || !isRole(role) || more.length > 0) {
      return { en: `That is not how it works: ${pair.usage}`, zh: `用法：${pair.usage}` }[context.lang];
    }
    const answer = await approveAndTell(tx, context.rooms, { code, by: actorOf(context), role });
    switch (answer.outcome) {
      case 'approved': {
        const name = oneLine(answer.person.name ?? answer.person.userId, 60);
        return { en: `${name} is in now, as ${role}.`, zh: `已批准 ${name}，角色：${role}。` }[context.lang];
      }
      case 'unknown_code':
        return {
          en: 'No one waits with this code: it is mistyped, used or too old.',
          zh: '没有人在等待这个配对码：可能输入有误、已使用或已过期。',
        }[context.lang];
      case 'too_many_wrong_codes': {
        const wait = duration(context.lang, answer.retryAfterMs);
        return { en: `Too many wrong codes. Please try again in ${wait}.`, zh: `错误的配对码太多，请 ${wait}后再试。` }[
          context.lang
        ];
      }
    }
  },
};

export const pairCommands: readonly Command[] = [pair];

/** Names only: a code is known to nobody but the person who got it. */
async function waiting(tx: Tx, { lang }: CommandContext): Promise<string> {
  const { pending } = await listAccess(tx, tx.now);
  if (pending.length === 0) return { en: 'Nobody waits to be let in.', zh: '没有等待配对的人。' }[lang];
  const lines = pending
    .slice(0, 20)
    .map((person) => `• ${oneLine(person.name ?? '—', 60)} (${person.channel}:${person.userId})`);
  const head = {
    en: 'These people wait to be let in; ask them for their code:',
    zh: '以下的人在等待配对，请向本人索取配对码：',
  }[lang];
  return [head, ...lines, ...(pending.length > 20 ? ['…'] : [])].join('\n');
}

async function openGroup(tx: Tx, context: CommandContext): Promise<string> {
  const { route, lang } = context;
  if (route.chatKind !== 'group') return { en: 'Send this in the group itself.', zh: '请在要开通的群里发送。' }[lang];
  await allowGroup(tx, { channel: route.channel, account: route.account, chat: route.chat }, actorOf(context));
  return { en: 'Everyone who is paired can use me in this group now.', zh: '本群已开通，已配对的人都可以在这里使用。' }[
    lang
  ];
}
