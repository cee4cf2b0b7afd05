import type { RichText, Route } from '../channels/channel.ts';
import { type IdCodec, sha256 } from '../ids.ts';
import type { Outbox } from '../outbox/enqueue.ts';
import type { NewMessage, OutboxEvent } from '../outbox/message.ts';
import { type Lang, langOf } from '../sessions/lang.ts';
import type { Tx } from '../store/tx.ts';
import { setDelivery } from '../tasks/queries.ts';
import type { DeliveryStatus } from '../tasks/states.ts';
import type { TaskEvent } from '../tasks/task.ts';
import { type Cards, cardOf, mayHaveCard } from './card.ts';
import { GraphNews } from './graph-news.ts';
import { skippedText } from './graph-wording.ts';
import { generationIn, messageKey } from './message-key.ts';
import { type FlowHome, flowHomes } from './queries.ts';
import { blockedText, finalText, progressText, type Subject, stateText, titleFor } from './wording.ts';

export interface NotifierOptions {
  readonly outbox: Pick<Outbox, 'enqueue' | 'withdraw'>;
  readonly ids: Pick<IdCodec, 'encode'>;
  /** The title of a template in a language; undefined where the template is gone or has none. */
  titleOf(template: string, lang: Lang): string | undefined;
  /** How a template's summaries are to be read; absent: as they are. */
  summaryOf?(template: string): Subject['summary'];
  /** ERRAND_LANG. */
  readonly lang: 'auto' | Lang;
  /** Default: none. */
  readonly cards?: Cards;
}

const NO_CARDS: Cards = new Set();

/** Turns events into outbox rows, in the transaction that makes them true. */
export interface Notifier {
  /**
   * Tells what the tasks' notify policies ask for: `silent` nothing, `done_only` the end and what waits for a person, `state_changes`
   * every change too. A task whose flow has no route is marked `parent_missing`. One read and one write for the whole batch; none for
   * silent tasks and tasks without a conversation.
   */
  onTaskEvents(tx: Tx, events: readonly TaskEvent[]): Promise<void>;
  /** Final messages that were sent or given up become the task's delivery status. */
  onOutboxEvents(tx: Tx, events: readonly OutboxEvent[]): Promise<void>;
}

export function createNotifier(options: NotifierOptions): Notifier {
  return {
    onTaskEvents: async (tx, events) => {
      const changed = events.filter((event) => event.type === 'task.notify');
      if (changed.length > 0) await takeBack(tx, changed, options);
      const told = events.filter((event) => isTold(event) || mayHaveCard(event, options.cards ?? NO_CARDS));
      if (told.length > 0) await tell(tx, told, options);
    },
    onOutboxEvents: async (tx, events) => {
      const rows = events.flatMap(receiptOf);
      if (rows.length > 0) await tx.run(setDelivery, { rows });
    },
  };
}

/** What waits to be sent and is not wanted any more: the policy that counts is the one at the time of sending. */
async function takeBack(tx: Tx, events: readonly TaskEvent[], { outbox }: NotifierOptions): Promise<void> {
  const quieter = events.filter(({ notifyPolicy }) => notifyPolicy !== 'state_changes');
  if (quieter.length === 0) return;
  const results = await outbox.withdraw(
    tx,
    quieter.map(({ id, notifyPolicy }) => ({ taskId: id, all: notifyPolicy === 'silent' })),
  );
  const rows = results.flatMap(({ taskId, dedupeKey }): Delivered[] => {
    const generation = generationIn(dedupeKey);
    return generation === undefined ? [] : [[taskId, generation, 'not_applicable']];
  });
  if (rows.length > 0) await tx.run(setDelivery, { rows });
}

function isTold(event: TaskEvent): boolean {
  if (event.sessionKey === null) return false;
  // The end of a graph is told by the policy of its flow.
  if (event.graph && event.type === 'task.ended') return true;
  if (event.notifyPolicy === 'silent') return false;
  if (event.type === 'task.ended' || event.type === 'task.blocked') return true;
  return event.notifyPolicy === 'state_changes' && (event.type === 'task.state' || event.type === 'task.progress');
}

async function tell(tx: Tx, events: readonly TaskEvent[], options: NotifierOptions): Promise<void> {
  const homes = await homesOf(tx, events);
  const deliveries: Delivered[] = [];
  const messages: NewMessage[] = [];
  const graphs = new GraphNews();
  for (const event of events) {
    const home = event.flowId === null ? undefined : homes.get(event.flowId);
    if (home?.graph === 1 && event.type === 'task.ended') {
      graphs.add(event, home);
      if (event.notifyPolicy !== 'state_changes') continue;
    } else if (event.notifyPolicy === 'silent') continue;
    if (!home) {
      if (isTold(event)) deliveries.push([event.id, event.generation, 'parent_missing']);
      continue;
    }
    messages.push(...messagesOf(tx, event, home, options));
  }
  messages.push(...(await graphs.messages(tx, options)));
  deliveries.push(...graphs.deliveries());
  if (messages.length > 0) await options.outbox.enqueue(tx, messages);
  if (deliveries.length > 0) await tx.run(setDelivery, { rows: deliveries });
}

/** What becomes of the result of a task's generation; a row of `setDelivery`. */
export type Delivered = [task: number, generation: number, status: DeliveryStatus];

export interface Home extends FlowHome {
  destination: Route;
}

/** The flows of the batch that have a route. */
async function homesOf(tx: Tx, events: readonly TaskEvent[]): Promise<Map<number, Home>> {
  const flowIds = [...new Set(events.flatMap(({ flowId }) => (flowId === null ? [] : [flowId])))];
  if (flowIds.length === 0) return new Map();
  const rows = await tx.all(flowHomes, { rows: flowIds.map((id) => [id]) });
  const homes = new Map<number, Home>();
  // Flows of one batch often go to the same place.
  const routes = new Map<string, Route>();
  for (const row of rows) {
    if (row.route === null) continue;
    let destination = routes.get(row.route);
    if (!destination) {
      destination = JSON.parse(row.route) as Route;
      routes.set(row.route, destination);
    }
    homes.set(row.id, { ...row, destination });
  }
  return homes;
}

/** Where a card shows how the task goes, no messages of their own tell it. */
function messagesOf(tx: Tx, event: TaskEvent, home: Home, options: NotifierOptions): NewMessage[] {
  const lang = langOf(home, home.goal, options.lang);
  const title = titleFor(options.titleOf(event.template, lang), event.template, event.label);
  const summary = options.summaryOf?.(event.template);
  const subject = { lang, title, id: options.ids.encode(event.id), summary };
  const place = {
    route: home.destination,
    sessionKey: home.owner_session_key,
    taskId: event.id,
    flowId: home.id,
  };
  const cards = options.cards ?? NO_CARDS;
  const isOnCard = mayHaveCard(event, cards) && home.graph !== 1 && cards.has(home.destination.channel);
  const card = isOnCard ? cardOf(event, home.destination, subject) : undefined;
  const said = isTold(event) ? (saySkipped(event, subject, options) ?? say(event, subject, tx.now)) : undefined;
  const messages: NewMessage[] = [];
  if (said && !(isOnCard && said.kind === 'update'))
    messages.push({ ...place, kind: said.kind, ...said.words, dedupeKey: messageKey(event, said.key) });
  if (card) messages.push({ ...place, kind: 'update', ...card });
  return messages;
}

/** Of a task that was skipped: because of which other. */
function saySkipped(event: TaskEvent, subject: Subject, { titleOf, ids }: NotifierOptions): Said | undefined {
  const need = event.type === 'task.ended' ? event.end.because : undefined;
  if (!need) return undefined;
  const title = titleFor(titleOf(need.template, subject.lang), need.template, need.label);
  return {
    kind: 'final',
    words: skippedText(subject, { id: ids.encode(need.id), title, state: need.state }),
    key: 'final',
  };
}

interface Said {
  kind: 'final' | 'update' | 'notice';
  words: RichText;
  /** What this message is within its task and generation: said once. */
  key: string;
}

/**
 * The text of an event and its key. A state is told once per transaction, hence the time in its key; a progress line is told once
 * per generation, however often the program repeats it.
 */
function say(event: TaskEvent, subject: Subject, now: number): Said | undefined {
  switch (event.type) {
    case 'task.ended':
      return { kind: 'final', words: finalText(subject, event.state, event.end), key: 'final' };
    case 'task.blocked':
      return {
        kind: 'notice',
        words: blockedText(subject, event.summary, event.question, event.reason),
        key: `blocked@${now}`,
      };
    case 'task.progress': {
      const words = progressText(subject, event.percent, event.message);
      return { kind: 'update', words, key: `progress:${sha256(words.text).slice(0, 16)}` };
    }
    case 'task.state': {
      const words = stateText(subject, event.from, event.to, event.reason);
      return words === undefined ? undefined : { kind: 'update', words, key: `${event.to}@${now}` };
    }
    default:
      return undefined;
  }
}

/** `session_queued` → delivered or failed, for the generation that the message is about. */
function receiptOf(event: OutboxEvent): Delivered[] {
  if (
    event.type === 'outbox.enqueued' ||
    event.type === 'outbox.edited' ||
    event.kind !== 'final' ||
    event.taskId === null
  )
    return [];
  const generation = generationIn(event.dedupeKey);
  if (generation === undefined) return [];
  return [[event.taskId, generation, event.type === 'outbox.sent' ? 'delivered' : 'failed']];
}
