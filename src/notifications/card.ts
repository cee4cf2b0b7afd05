import type { RichText, Route } from '../channels/channel.ts';
import type { NewMessage } from '../outbox/message.ts';
import { bold, code, rich } from '../rich-text.ts';
import { channelHint } from '../sessions/keys.ts';
import type { TaskEvent } from '../tasks/task.ts';
import { oneLine } from '../text.ts';
import { messageKey } from './message-key.ts';
import { headline, type Subject } from './wording.ts';

/*
 * The card of a task: one message that says how it goes, edited in place, and in the end one line. It comes when a task takes longer than
 * a moment, so that a quick errand is one message: its result.
 */

/** A task that has ended by then gets no card. */
const APPEARS_AFTER_MS = 3_000;
/** Between two edits: quick enough to be alive, slow enough to leave most of the chat's rate to results. */
const PACE_MS = { direct: 1_500, group: 6_000 } as const;
const BAR_CELLS = 10;

/** Channels whose tasks have cards: those that can edit messages. */
export type Cards = ReadonlySet<string>;

/** Whether the event may change a card: of a task of a conversation there. Costs no look at a row. */
export function mayHaveCard(event: TaskEvent, cards: Cards): boolean {
  return (
    cards.size > 0 &&
    event.sessionKey !== null &&
    event.notifyPolicy !== 'silent' &&
    !event.graph &&
    CHANGES.has(event.type) &&
    cards.has(channelHint(event.sessionKey) ?? '')
  );
}

const CHANGES: ReadonlySet<TaskEvent['type']> = new Set(['task.queued', 'task.state', 'task.progress', 'task.ended']);

/** What becomes of the card, or undefined where it stays as it is. */
export function cardOf(
  event: TaskEvent,
  { chatKind }: Route,
  subject: Subject,
): (RichText & Pick<NewMessage, 'edits'>) | undefined {
  const words = wordsOf(event, subject);
  if (words === undefined) return undefined;
  const key = messageKey(event, 'card');
  const ended = event.type === 'task.ended';
  const paceMs = event.type === 'task.queued' ? APPEARS_AFTER_MS : PACE_MS[chatKind];
  return { ...words, edits: { key, paceMs, ...(ended && { closes: true }) } };
}

function wordsOf(event: TaskEvent, subject: Subject): RichText | undefined {
  const { lang, id } = subject;
  const title = bold(subject.title);
  const cancel = code(`/cancel ${id}`);
  switch (event.type) {
    case 'task.queued': {
      const why = code(`/why ${id}`);
      return {
        en: rich`⏳ ${title} is waiting to start\n${why} · ${cancel}`,
        zh: rich`⏳ ${title} 等待开始\n${why} · ${cancel}`,
      }[lang];
    }
    case 'task.state': {
      if (event.to === 'running')
        return { en: rich`▶️ ${title} is running\n${cancel}`, zh: rich`▶️ ${title} 正在运行\n${cancel}` }[lang];
      return event.to === 'paused' ? { en: rich`⏸ ${title} is paused`, zh: rich`⏸ ${title} 已暂停` }[lang] : undefined;
    }
    case 'task.progress': {
      const said = [event.percent === null ? '' : barOf(event.percent), oneLine(event.message ?? '', 300)];
      return rich`▶️ ${title}\n${said.filter((part) => part !== '').join('\n')}\n${cancel}`;
    }
    case 'task.ended':
      return headline(subject, event.state, event.end);
    default:
      return undefined;
  }
}

/** `▰▰▰▰▱▱▱▱▱▱ 40 %` */
function barOf(percent: number): string {
  const full = Math.min(BAR_CELLS, Math.max(0, Math.round((percent / 100) * BAR_CELLS)));
  return `${'▰'.repeat(full)}${'▱'.repeat(BAR_CELLS - full)} ${Math.round(percent)} %`;
}
