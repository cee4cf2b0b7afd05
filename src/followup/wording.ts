import type { Lang } from '../sessions/lang.ts';
import type { TaskState } from '../tasks/states.ts';
import { oneLine } from '../text.ts';

/** What a person is told when an errand does not simply start; pure. */

/** An argument is wrong or missing. */
export function wrongText(lang: Lang, problem: string, usage: string): string {
  return { en: `I cannot start that: ${problem}.\nTry: ${usage}`, zh: `无法开始：${problem}。\n用法：${usage}` }[lang];
}

export function goneText(lang: Lang, template: string): string {
  return {
    en: `There is no errand ${oneLine(template, 48)} any more. /help lists what there is.`,
    zh: `任务 ${oneLine(template, 48)} 已不存在。发送 /help 查看可用的任务。`,
  }[lang];
}

export function mayNot(lang: Lang, title: string): string {
  return { en: `You are not allowed to run “${title}”.`, zh: `您没有权限运行“${title}”。` }[lang];
}

export function faultText(lang: Lang): string {
  return {
    en: 'Something went wrong on my side, and your errand was not started. An administrator can find the reason in the log.',
    zh: '我这边出了问题，任务没有开始。管理员可以在日志中查看原因。',
  }[lang];
}

/** The errand is stored while nothing new starts. */
export function parkedText(lang: Lang, title: string, id: string): string {
  return {
    en: `“${title}” is accepted (${id}); it starts when the gateway is open again. /status shows what waits, /cancel ${id} takes it back.`,
    zh: `“${title}”已受理（${id}），网关重新开放后会自动开始。发送 /status 查看等待中的任务，发送 /cancel ${id} 可取消。`,
  }[lang];
}

/** The errand is stored and nobody can take it as things are. @param why whole sentences */
export function untakenText(lang: Lang, title: string, id: string, why: string): string {
  return {
    en: `“${title}” is accepted (${id}), but nobody can take it now. ${why} /cancel ${id} takes it back.`,
    zh: `“${title}”已受理（${id}），但目前没有机器可以执行。${why}发送 /cancel ${id} 可取消。`,
  }[lang];
}

/** The same errand was asked for before; `existing` is the same one, `conflict` one with other details under the same key. */
export function repeatText(
  lang: Lang,
  title: string,
  id: string,
  answer: { result: 'created' | 'existing'; status: TaskState } | { result: 'conflict' },
): string {
  if (answer.result === 'conflict') {
    return {
      en: `“${title}” was asked for before with other details (${id}), so I did not start it again. /task ${id}`,
      zh: `“${title}”之前已提交过，但内容不同（${id}），因此没有再次开始。/task ${id}`,
    }[lang];
  }
  return {
    en: `“${title}” was asked for before (${id}), so I did not start it twice. /task ${id} shows how it stands.`,
    zh: `“${title}”之前已提交过（${id}），没有重复开始。发送 /task ${id} 查看进展。`,
  }[lang];
}
