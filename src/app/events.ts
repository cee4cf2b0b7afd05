import { followTasks } from '../flows/follow.ts';
import type { Rooms } from '../http/rooms.ts';
import { createNotifier } from '../notifications/notifier.ts';
import type { OutboxEvent } from '../outbox/message.ts';
import { watchBreakers } from '../tasks/breaker-watch.ts';
import { buryDead } from '../tasks/dead-letters.ts';
import { releaseDecided } from '../tasks/effect-resolve.ts';
import { watchNeeds } from '../tasks/needs.ts';
import type { FinishedTasks } from '../telemetry/finished.ts';
import type { Base } from './base.ts';

export interface Listeners {
  wakeDelivery(): void;
  /** Something that a web chat shows has changed. */
  chatChanged(sessionKeys: ReadonlySet<string>): void;
  finished: FinishedTasks;
}

/** Events are drained in this order, inside the transaction that made them: flows, needs, dead letters, breakers, notifications, then the agents that wait. */
export function subscribe(
  base: Base,
  { dispatch, gateway, breakers }: Pick<Rooms, 'dispatch' | 'gateway'> & Partial<Pick<Rooms, 'breakers'>>,
  listeners: Listeners,
): void {
  const { store, templates, outbox, settings, taskEvents, outboxEvents, emit } = base;
  const titleOf = (id: string, lang: 'en' | 'zh') => templates.get(id)?.title[lang];
  const summaryOf = (id: string) => templates.get(id)?.summary;
  const notifier = createNotifier({ outbox, ids: store.ids, titleOf, summaryOf, lang: settings.lang, cards: CARDS });
  taskEvents.subscribe(followTasks);
  taskEvents.subscribe(watchNeeds({ ids: store.ids, emit }));
  taskEvents.subscribe(buryDead);
  if (breakers) taskEvents.subscribe(watchBreakers(breakers, emit));
  taskEvents.subscribe((tx, events) => notifier.onTaskEvents(tx, events));
  taskEvents.subscribe((tx, events) => listeners.finished.onTaskEvents(tx, events));
  taskEvents.subscribe((tx, events) => gateway.onTaskEvents(tx, events));
  taskEvents.subscribe((tx, events) => dispatch.onTaskEvents(tx, events));
  // Last: what follows a block is done before it is lifted.
  taskEvents.subscribe((tx, events) => releaseDecided(tx, events, emit));
  outboxEvents.subscribe((tx, events) => notifier.onOutboxEvents(tx, events));
  outboxEvents.subscribe(async (tx, events) => {
    if (events.some((event) => event.type === 'outbox.enqueued')) tx.afterCommit(() => listeners.wakeDelivery());
    const keys = new Set(events.flatMap(webchatKey));
    if (keys.size > 0) tx.afterCommit(() => listeners.chatChanged(keys));
  });
  store.onBeforeCommit(async (tx) => {
    await taskEvents.drain(tx);
    await outboxEvents.drain(tx);
  });
}

/** The channels that can edit messages; the web chat shows by itself how a task goes. */
const CARDS: ReadonlySet<string> = new Set(['telegram']);

function webchatKey(event: OutboxEvent): readonly string[] {
  if (event.type === 'outbox.edited') return event.sessionKeys;
  return event.type === 'outbox.sent' && event.channel === 'webchat' && event.sessionKey !== null
    ? [event.sessionKey]
    : [];
}
