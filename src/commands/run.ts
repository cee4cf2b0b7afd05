import { matchTrigger, parseRun, type Routed, type RouteProblem } from '../flows/router.ts';
import type { Tx } from '../store/tx.ts';
import type { Command, CommandContext } from './command.ts';

/** Asking for an errand: /run, and every other message that fits a template's trigger. */
const run: Command = {
  name: 'run',
  aliases: ['运行'],
  right: 'run',
  usage: '/run <errand> [name=value …]',
  help: { en: 'start an errand', zh: '运行任务' },
  async run(tx, context) {
    const routed = parseRun(context.rooms.templates.list(), `/run ${context.rest}`);
    // `/run` itself always is a /run command.
    return ask(tx, context, routed!);
  },
};

export const runCommands: readonly Command[] = [run];

/** What to say about a message that fits a trigger (perhaps nothing), or undefined where it fits none. */
export async function startFromText(
  tx: Tx,
  context: CommandContext,
): Promise<{ text: string | undefined } | undefined> {
  const routed = matchTrigger(context.rooms.templates.list(), context.text);
  return routed === null ? undefined : { text: await ask(tx, context, routed) };
}

/** Whether `startFromText` would start something. */
export function startsErrand({ rooms, text }: Pick<CommandContext, 'rooms' | 'text'>): boolean {
  const routed = matchTrigger(rooms.templates.list(), text);
  return routed !== null && !('problem' in routed);
}

/** Queues the errand; its arguments are checked when it starts. Says what is wrong, or that the message could have meant others. */
async function ask(tx: Tx, context: CommandContext, routed: Routed | RouteProblem): Promise<string | undefined> {
  const { lang, route, sessionKey, inboxId, speaker, rooms } = context;
  if ('problem' in routed) return routed.text[lang];
  const { template, args, others } = routed;
  await rooms.ask(tx, [{ inboxId, sessionKey, route, userId: speaker.userId, template: template.id, args }]);
  if (others.length === 0) return undefined;
  const list = others.slice(0, 5).join(', ');
  return {
    en: `I took that as “${template.title.en}”. It also fits: ${list}; use /run to choose.`,
    zh: `已按“${template.title.zh}”处理。它也符合：${list}；可用 /run 指定。`,
  }[lang];
}
