import type { ChannelName } from '../channels/channel.ts';
import type { Lang } from '../sessions/lang.ts';

/** What people are told who may not: one line each, with the id by which an administrator knows them. */

/** How a person is named to an administrator: `telegram:42`. */
export function idShown(channel: ChannelName | string, userId: string): string {
  return `${channel}:${userId}`;
}

/** Access was taken away. */
export function revokedText(lang: Lang, id: string): string {
  return {
    en: `Sorry, your access was taken away. An administrator can give it back; your id is ${id}.`,
    zh: `抱歉，您的权限已被撤销。管理员可以恢复，您的编号是 ${id}。`,
  }[lang];
}

/** Nobody has let this person in, and codes are not shown to a whole group. */
export function strangerInGroupText(lang: Lang, id: string): string {
  return {
    en: `Sorry, we have not met yet (${id}). Write to me directly, and I tell you how to be let in.`,
    zh: `抱歉，我们还不认识（${id}）。请直接给我发消息，我会告诉您如何配对。`,
  }[lang];
}

/** An anonymous administrator or a channel speaks. */
export function anonymousText(lang: Lang): string {
  return {
    en: 'Sorry, who writes anonymously or as a channel has no rights here. Please write under your own name.',
    zh: '抱歉，匿名或以频道身份发送的消息没有权限。请用您自己的身份发送。',
  }[lang];
}

/** The person is known, the group is not. */
export function groupClosedText(lang: Lang, id: string): string {
  return {
    en: `I may not work in this group yet (you are ${id}). An administrator can allow it by sending /pair group here; or write to me directly.`,
    zh: `我还没有被允许在这个群里工作（您的编号是 ${id}）。管理员在群里发送 /pair group 即可开通，您也可以直接给我发消息。`,
  }[lang];
}

/** A command that this person's role does not allow. */
export function roleText(lang: Lang, command: string, id: string): string {
  return {
    en: `You are not allowed to use /${command} (you are ${id}); an administrator can change that.`,
    zh: `您没有权限使用 /${command}（您的编号是 ${id}），管理员可以调整。`,
  }[lang];
}

/** Telegram's privacy mode is on: what the bot cannot see in a group, and what to do. */
export function limitedViewText(lang: Lang): string {
  return {
    en: 'Telegram shows me only commands and replies to me in this group (privacy mode), perhaps not even mentions: start with a command, such as /run. To change it, turn privacy off at @BotFather and add me to the group again.',
    zh: 'Telegram 在本群只让我看到命令和对我的回复（隐私模式），提及可能也看不到：请以命令开头，例如 /run。如需更改，请在 @BotFather 关闭隐私模式，然后重新把我加入本群。',
  }[lang];
}
