import type { TaskExplainer } from '../agents/explainer.ts';
import type { Route } from '../channels/channel.ts';
import type { Texts } from '../flows/template-model.ts';
import type { TemplateRegistry } from '../flows/templates.ts';
import type { NewFollowup } from '../followup/followup.ts';
import type { IdCodec } from '../ids.ts';
import type { NewMessage } from '../outbox/message.ts';
import type { Words } from '../rich-text.ts';
import { personText } from '../sessions/access.ts';
import type { Lang } from '../sessions/lang.ts';
import type { Right, Role } from '../sessions/rights.ts';
import type { Tx } from '../store/tx.ts';
import type { Emit, TaskEvent } from '../tasks/task.ts';

/** What a person can type after a slash; the same on every channel. */
export interface Command {
  /** Without the slash, lower case. */
  readonly name: string;
  /** Other names, for example the Chinese one. */
  readonly aliases: readonly string[];
  /** What the person must be allowed to do. */
  readonly right: Right;
  /** The form, with the slash, as shown in /help and when the command is used wrongly. */
  readonly usage: string;
  /** One line. */
  readonly help: Texts;
  /** Works also in a group that is not allowed yet. */
  readonly inClosedGroups?: true;
  /**
   * Acts and answers within the transaction that marks the message as done: effect, reply and mark are one.
   * Undefined: there is nothing to say now, the errand itself will report.
   */
  run(tx: Tx, context: CommandContext): Promise<Words | undefined>;
}

/** The paired person who speaks. */
export interface Speaker {
  readonly userId: string;
  readonly name: string | null;
  readonly role: Role;
}

/** Why a message is not simply acted on: it is so many milliseconds old, or a changed version of another one. */
export type Doubt = { readonly because: 'old'; readonly ageMs: number } | { readonly because: 'edited' };

export interface CommandContext {
  /** The whole message, trimmed. */
  readonly text: string;
  /** What follows the command's name, trimmed. */
  readonly rest: string;
  readonly lang: Lang;
  readonly speaker: Speaker;
  readonly route: Route;
  readonly sessionKey: string;
  readonly inboxId: number;
  /** All commands, in the order of /help. */
  readonly commands: readonly Command[];
  readonly rooms: CommandRooms;
  /** Absent for most messages. */
  readonly doubt?: Doubt | undefined;
  /** In this group the platform shows the bot only commands, mentions and replies to it. */
  readonly limitedView?: true | undefined;
  /** Acts on an earlier message of this person as if it came now without doubt, and answers what to say. */
  actOn(
    tx: Tx,
    message: { readonly id: number; readonly text: string; readonly route: Route },
  ): Promise<Words | undefined>;
}

/** What commands act through. */
export interface CommandRooms {
  readonly ids: IdCodec;
  readonly templates: Pick<TemplateRegistry, 'get' | 'list'>;
  readonly outbox: { enqueue(tx: Tx, messages: readonly NewMessage[]): Promise<void> };
  readonly emitTasks: Emit<TaskEvent>;
  readonly why: Pick<TaskExplainer, 'explain'>;
  /** ERRAND_LANG. */
  readonly lang: 'auto' | Lang;
  /** Whether nothing new starts at the moment. Absent: never. */
  readonly isDraining?: () => boolean;
  /** A log is to be followed in a chat. Absent: nobody follows any. */
  readonly wakeLogFollows?: () => void;
  /** Puts errands into the conversation's queue; they start right after the commit. */
  ask(tx: Tx, errands: readonly NewFollowup[]): Promise<void>;
}

/** The speaker as the actor of an event or an audit entry. */
export function actorOf({ route, speaker }: CommandContext): string {
  return `person:${personText({ channel: route.channel, account: route.account, userId: speaker.userId })}`;
}

/** `/cancel k7q2` → name `cancel`, rest `k7q2`; undefined for text that is no command. A full-width slash counts as one. */
export function parseCommand(text: string): { name: string; rest: string } | undefined {
  const match = /^\s*[/／]([\p{L}\p{N}_-]{1,64})(?:@\S+)?(?:\s+([\s\S]*))?$/u.exec(text);
  return match ? { name: match[1]!.normalize('NFKC').toLowerCase(), rest: (match[2] ?? '').trim() } : undefined;
}
