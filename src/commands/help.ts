import { limitedViewText } from '../notifications/refusals.ts';
import { bold, code, joined, rich, type Words } from '../rich-text.ts';
import { may } from '../sessions/rights.ts';
import { oneLine } from '../text.ts';
import type { Command, CommandContext } from './command.ts';

/** Finding one's way: /help, /start, /whoami. */
const ERRANDS_SHOWN = 20;

const help: Command = {
  name: 'help',
  aliases: ['帮助'],
  right: 'talk',
  usage: '/help [command]',
  help: { en: 'what I can do', zh: '查看用法' },
  async run(_tx, context) {
    const word = context.rest.replace(/^[/／]/, '').toLowerCase();
    const asked = context.commands.find(({ name, aliases }) => name === word || aliases.includes(word));
    if (asked) return rich`${code(asked.usage)} — ${asked.help[context.lang]}`;
    return joined([...commandLines(context), ...errandLines(context)], '\n');
  },
};

const start: Command = {
  name: 'start',
  aliases: ['开始'],
  right: 'talk',
  usage: '/start',
  help: { en: 'say hello', zh: '开始使用' },
  async run(_tx, { lang, speaker, limitedView }) {
    const name = oneLine(speaker.name ?? '', 60);
    const hello = {
      en: `Hello${name === '' ? '' : ` ${name}`}! Send me on an errand, and I come back here with the answer. /help lists what I can do.`,
      zh: `您好${name === '' ? '' : `，${name}`}！把事情交给我，办完后我会在这里回复您。发送 /help 查看用法。`,
    }[lang];
    return limitedView ? `${hello}\n${limitedViewText(lang)}` : hello;
  },
};

const whoami: Command = {
  name: 'whoami',
  aliases: ['我是谁'],
  right: 'talk',
  usage: '/whoami',
  help: { en: 'who you are to me and what you may do', zh: '查看您的身份和权限' },
  async run(_tx, { lang, speaker, route, sessionKey }) {
    const name = oneLine(speaker.name ?? '', 60) || '—';
    return {
      en: `Name: ${name}\nId: ${route.channel}:${speaker.userId}\nRole: ${speaker.role}\nConversation: ${sessionKey}`,
      zh: `姓名：${name}\n编号：${route.channel}:${speaker.userId}\n角色：${ROLES_ZH[speaker.role]}\n会话：${sessionKey}`,
    }[lang];
  },
};

export const helpCommands: readonly Command[] = [help, start, whoami];

/** Roles in Chinese. */
export const ROLES_ZH = { viewer: '观察者', operator: '操作员', approver: '审批人', admin: '管理员' } as const;

function commandLines({ lang, commands, speaker }: CommandContext): Words[] {
  const head = bold({ en: 'Commands:', zh: '命令：' }[lang]);
  return [
    head,
    ...commands
      .filter(({ right }) => may(speaker.role, right))
      .map(({ usage, help: line }) => `${usage} — ${line[lang]}`),
  ];
}

/** The errands there are: a phrase that starts one, else the /run form. */
function errandLines({ lang, rooms, speaker }: CommandContext): Words[] {
  const templates = rooms.templates.list();
  if (templates.length === 0 || !may(speaker.role, 'run')) return [];
  const lines = templates.slice(0, ERRANDS_SHOWN).map((template) => {
    return `• ${template.title[lang]} — ${template.triggers[0] ?? `/run ${template.id}`}`;
  });
  if (templates.length > ERRANDS_SHOWN) lines.push('…');
  return ['', bold({ en: 'Errands:', zh: '任务：' }[lang]), ...lines];
}
