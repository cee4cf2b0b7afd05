import type { ChannelName } from '../channels/channel.ts';
import {
  denyGroup,
  getPerson,
  getPersonById,
  listAccess,
  type Person,
  personText,
  revoke,
  setGroupPolicy,
  setRole,
} from '../sessions/access.ts';
import type { Lang } from '../sessions/lang.ts';
import { GROUP_POLICIES, type GroupPolicy, isGroupPolicy, isRole } from '../sessions/rights.ts';
import type { Tx } from '../store/tx.ts';
import { oneLine } from '../text.ts';
import { actorOf, type Command, type CommandContext } from './command.ts';
import { ROLES_ZH } from './help.ts';

/** Who may do what, and what the bot listens to in a group: /access. */
const access: Command = {
  name: 'access',
  aliases: ['权限'],
  right: 'administer',
  usage: '/access [role <person> <role> | revoke <person> | group <mention|commands|off|close>]',
  help: {
    en: 'who may do what; change a role; what I listen to in this group',
    zh: '查看和修改权限；设置我在本群中响应什么',
  },
  inClosedGroups: true,
  async run(tx, context) {
    const [word = '', first = '', second = ''] = context.rest.split(/\s+/);
    const given = context.rest.split(/\s+/).length;
    if (word === '') return list(tx, context);
    if (word.toLowerCase() === 'role' && given === 3) return changeRole(tx, context, first, second.toLowerCase());
    if (word.toLowerCase() === 'revoke' && given === 2) return takeAway(tx, context, first);
    if (word.toLowerCase() === 'group' && given === 2) return setGroup(tx, context, first.toLowerCase());
    return howTo(context.lang);
  },
};

export const accessCommands: readonly Command[] = [access];

const PEOPLE_SHOWN = 30;

async function list(tx: Tx, { lang, rooms, route }: CommandContext): Promise<string> {
  const { people, groups } = await listAccess(tx, tx.now);
  const lines = people.slice(0, PEOPLE_SHOWN).map((person) => {
    const name = oneLine(person.name ?? '—', 60);
    return `• ${rooms.ids.encode(person.id)} ${name} (${placeOf(person)}) — ${roleWord(lang, person)}`;
  });
  if (people.length > PEOPLE_SHOWN) lines.push('…');
  if (route.chatKind === 'group') {
    const here = groups.find(
      ({ channel, account, chat }) => channel === route.channel && account === route.account && chat === route.chat,
    );
    lines.push(groupLine(lang, here?.policy));
  }
  return lines.join('\n');
}

async function changeRole(tx: Tx, context: CommandContext, word: string, role: string): Promise<string> {
  const { lang } = context;
  if (!isRole(role)) return howTo(lang);
  const person = await findPerson(tx, context, word);
  if (!person) return nobody(lang, word);
  if (isSelf(context, person)) return notOneself(lang);
  const changed = (await setRole(tx, person, role, actorOf(context)))!;
  const name = nameOf(changed);
  return { en: `${name} is ${role} now.`, zh: `${name} 现在是${ROLES_ZH[role]}。` }[lang];
}

async function takeAway(tx: Tx, context: CommandContext, word: string): Promise<string> {
  const { lang } = context;
  const person = await findPerson(tx, context, word);
  if (!person) return nobody(lang, word);
  if (isSelf(context, person)) return notOneself(lang);
  await revoke(tx, person, actorOf(context));
  return { en: `${nameOf(person)} has no rights any more.`, zh: `${nameOf(person)} 已没有任何权限。` }[lang];
}

async function setGroup(tx: Tx, context: CommandContext, word: string): Promise<string> {
  const { lang, route } = context;
  if (word !== 'close' && !isGroupPolicy(word)) return howTo(lang);
  if (route.chatKind !== 'group') return { en: 'Send this in the group itself.', zh: '请在要设置的群里发送。' }[lang];
  const group = { channel: route.channel, account: route.account, chat: route.chat };
  if (word === 'close') await denyGroup(tx, group, actorOf(context));
  else await setGroupPolicy(tx, group, word, actorOf(context));
  return groupLine(lang, word === 'close' ? undefined : word);
}

/**
 * A person by the id that the list shows, or as `telegram:42`, `telegram/account/42`. Never by a bare user id: some platforms let people
 * choose theirs, so that one could look like somebody else's id.
 */
async function findPerson(tx: Tx, { rooms }: CommandContext, word: string): Promise<Person | undefined> {
  const named = /^(telegram|wecom|webchat)(?:\/([^/:]+))?[:/](.+)$/.exec(word);
  if (named) {
    const [, channel, account = 'default', userId] = named;
    return getPerson(tx, { channel: channel as ChannelName, account, userId: userId! });
  }
  const id = rooms.ids.decode(word);
  return id === undefined ? undefined : getPersonById(tx, id);
}

/** Else the last administrator could shut everybody out, and a slip of the finger could not be taken back in the chat. */
function isSelf({ route, speaker }: CommandContext, person: Person): boolean {
  return personText(person) === personText({ ...route, userId: speaker.userId });
}

function placeOf({ channel, account, userId }: Person): string {
  return account === 'default' ? `${channel}:${userId}` : `${channel}/${account}:${userId}`;
}

function nameOf(person: Person): string {
  return oneLine(person.name ?? person.userId, 60);
}

function roleWord(lang: Lang, { role, revokedAt }: Person): string {
  if (revokedAt !== null) return { en: 'revoked', zh: '已撤销' }[lang];
  return lang === 'zh' ? ROLES_ZH[role] : role;
}

const LISTENS: Record<GroupPolicy, Record<Lang, string>> = {
  mention: {
    en: 'In this group I act on commands, mentions and replies to me.',
    zh: '在本群中，我响应命令、提及和对我的回复。',
  },
  commands: { en: 'In this group I act on commands only.', zh: '在本群中，我只响应命令。' },
  off: { en: 'In this group I act on nothing.', zh: '在本群中，我不响应任何消息。' },
};

function groupLine(lang: Lang, policy: GroupPolicy | undefined): string {
  if (policy !== undefined) return LISTENS[policy][lang];
  const choices = GROUP_POLICIES.slice(0, 2).join('|');
  return {
    en: `This group is not open to me. /access group ${choices} opens it.`,
    zh: `本群未开通。发送 /access group ${choices} 即可开通。`,
  }[lang];
}

function howTo(lang: Lang): string {
  return { en: `That is not how it works: ${access.usage}`, zh: `用法：${access.usage}` }[lang];
}

function nobody(lang: Lang, word: string): string {
  const shown = oneLine(word, 60);
  return {
    en: `I know nobody called ${shown}. /access lists everybody with their id.`,
    zh: `没有找到 ${shown}。发送 /access 查看所有人及其编号。`,
  }[lang];
}

function notOneself(lang: Lang): string {
  return {
    en: 'Nobody changes their own rights here: ask another administrator, or use the command line.',
    zh: '不能修改自己的权限：请联系其他管理员，或使用命令行。',
  }[lang];
}
