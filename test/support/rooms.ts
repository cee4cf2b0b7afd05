import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TaskExplainer } from '../../src/agents/explainer.ts';
import { AgentRegistry } from '../../src/agents/registry.ts';
import type { ChannelName, ChannelPort, IncomingMessage, Mark, Route } from '../../src/channels/channel.ts';
import { type ManualClock, manualClock } from '../../src/clock.ts';
import type { CommandRooms } from '../../src/commands/command.ts';
import { followTasks } from '../../src/flows/follow.ts';
import { loadTemplates, type TemplateRegistry } from '../../src/flows/templates.ts';
import { createFollowup, type Followup } from '../../src/followup/drain.ts';
import type { RowLoop } from '../../src/followup/row-loop.ts';
import { createChannelPort } from '../../src/intake/inbox.ts';
import { createIntake } from '../../src/intake/intake.ts';
import { silentLog } from '../../src/log.ts';
import { createNotifier } from '../../src/notifications/notifier.ts';
import { createOutbox, type Outbox } from '../../src/outbox/enqueue.ts';
import type { OutboxEvent } from '../../src/outbox/message.ts';
import { sessionKeyOf } from '../../src/sessions/keys.ts';
import type { Lang } from '../../src/sessions/lang.ts';
import { approvePairing, requestPairing } from '../../src/sessions/pairing.ts';
import type { Role } from '../../src/sessions/rights.ts';
import { setSession } from '../../src/sessions/sessions.ts';
import { EventQueue } from '../../src/store/events.ts';
import type { OutboxTable } from '../../src/store/outbox-tables.ts';
import { openSqlite } from '../../src/store/sqlite.ts';
import type { Store } from '../../src/store/store.ts';
import type { FollowupTable, InboxTable, TaskTable } from '../../src/store/tables.ts';
import type { Tx } from '../../src/store/tx.ts';
import { type Grant, TaskLine } from '../../src/tasks/claim.ts';
import { buryDead } from '../../src/tasks/dead-letters.ts';
import { type RunNews, reportRunsVerb } from '../../src/tasks/report.ts';
import type { TaskEvent } from '../../src/tasks/task.ts';
import { createRefusals, type Refusals } from '../../src/telemetry/refusals.ts';
import { until } from './until.ts';

export const START = Date.UTC(2026, 2, 1, 12);

/** The way to a person's direct chat. */
export function direct(userId: string, channel: ChannelName = 'telegram'): Route {
  return { channel, account: 'default', chat: userId, chatKind: 'direct' };
}

export interface RoomsOptions {
  /** File name → YAML. */
  templates: Record<string, string>;
  lang?: 'auto' | Lang;
  /** Whether the loops run; default true. */
  running?: boolean;
  /** Channels whose tasks have cards; default none. */
  cards?: ReadonlySet<string>;
}

/**
 * Everything between a stored message and an outgoing row, on a real store, wired as the application wires it: no channel sends and no
 * agent runs; tests read the rows and play the agent.
 */
export class Rooms {
  readonly clock: ManualClock = manualClock(START);
  readonly options: RoomsOptions;
  readonly #folder: string;
  store!: Store;
  outbox!: Outbox;
  templates!: TemplateRegistry;
  followup!: Followup;
  intake!: RowLoop;
  port!: ChannelPort;
  rooms!: CommandRooms;
  /** Called inside each transaction before its events are drained; throws what a test wants to go wrong. */
  sabotage: (tx: Tx) => Promise<void> = async () => undefined;
  /** Every event of tasks, as emitted. */
  readonly taskEvents: TaskEvent[] = [];
  readonly refusals: Refusals = createRefusals();
  #emitTasks!: (tx: Tx, events: readonly TaskEvent[]) => void;
  #emitLetters!: (tx: Tx, events: readonly OutboxEvent[]) => void;
  #seq = 0;
  #identity = 0;

  private constructor(folder: string, options: RoomsOptions) {
    this.#folder = folder;
    this.options = options;
  }

  static async open(options: RoomsOptions): Promise<Rooms> {
    const folder = await mkdtemp(join(tmpdir(), 'errand-rooms-'));
    await mkdir(join(folder, 'templates'));
    for (const [name, text] of Object.entries(options.templates))
      await writeFile(join(folder, 'templates', name), text);
    const rooms = new Rooms(folder, options);
    await rooms.#wire();
    if (options.running !== false) await rooms.start();
    return rooms;
  }

  async start(): Promise<void> {
    await this.followup.start();
    await this.intake.start();
  }

  /** What a crash leaves: the files and nothing else. Loops are stopped, the store is opened again. */
  async reopen({ running = true }: { running?: boolean } = {}): Promise<void> {
    await this.#halt();
    await this.#wire();
    if (running) await this.start();
  }

  async close(): Promise<void> {
    await this.#halt();
    await rm(this.#folder, { recursive: true, force: true });
  }

  /** The next `reopen` finds no such template. */
  async removeTemplate(file: string): Promise<void> {
    await rm(join(this.#folder, 'templates', file));
  }

  /** Pairs a person without a code passing through a chat. */
  async pair(
    userId: string,
    role: Role = 'operator',
    more: { name?: string; channel?: ChannelName } = {},
  ): Promise<void> {
    const channel = more.channel ?? 'telegram';
    await this.store.transact('test.pair', async (tx) => {
      const request = {
        channel,
        account: 'default',
        userId,
        route: direct(userId, channel),
        ...(more.name ? { name: more.name } : {}),
      };
      const asked = await requestPairing(tx, request);
      await approvePairing(tx, asked.code!, 'test', role);
    });
  }

  /** Stores a message as a channel does. */
  async hear(userId: string, text: string, more: Partial<IncomingMessage> = {}): Promise<void> {
    this.#identity += 1;
    await this.port.accept([
      {
        identity: `m${this.#identity}`,
        kind: 'text',
        route: direct(userId),
        sender: { id: userId, name: `Name ${userId}` },
        text,
        addressed: true,
        ...more,
      },
    ]);
  }

  /** Says something and waits until everything that follows from it has happened; answers the new outgoing rows of that chat. */
  async say(userId: string, text: string, more: Partial<IncomingMessage> = {}): Promise<OutboxTable[]> {
    const before = (await this.sent()).length;
    await this.hear(userId, text, more);
    await this.settled();
    return (await this.sent()).slice(before);
  }

  /** The one direct answer to what this person says. */
  async reply(userId: string, text: string): Promise<string> {
    return (await this.lookOfReply(userId, text)).text;
  }

  /** The same with how it looks. */
  async lookOfReply(userId: string, text: string): Promise<{ text: string; marks: Mark[] }> {
    const rows = (await this.say(userId, text)).filter((row) => row.kind === 'reply');
    if (rows.length !== 1) throw new Error(`${rows.length} answers to ${text}`);
    return { text: rows[0]!.text, marks: JSON.parse(rows[0]!.marks ?? '[]') as Mark[] };
  }

  /** The language of this person's conversation from now on. */
  async choose(lang: 'en' | 'zh', userId = '7'): Promise<void> {
    await this.say(userId, '/start');
    await this.store.transact('test.lang', (tx) => setSession(tx, sessionKeyOf(direct(userId), userId), { lang }));
  }

  /** No message and no errand waits any more. */
  async settled(): Promise<void> {
    await until(async () => {
      const waiting = [
        ...(await this.inbox()).filter((row) => row.status === 'new'),
        ...(await this.followups()).filter((row) => row.status === 'queued'),
      ];
      return waiting.length === 0;
    }, 'everything to be worked off');
  }

  inbox = (): Promise<InboxTable[]> =>
    this.store.fetch(this.store.dialect.build.selectFrom('inbox').selectAll().orderBy('id'));
  sent = (): Promise<OutboxTable[]> =>
    this.store.fetch(this.store.dialect.build.selectFrom('outbox').selectAll().orderBy('id'));
  tasks = (): Promise<TaskTable[]> =>
    this.store.fetch(this.store.dialect.build.selectFrom('task').selectAll().orderBy('id'));
  followups = (): Promise<FollowupTable[]> =>
    this.store.fetch(this.store.dialect.build.selectFrom('followup').selectAll().orderBy('id'));

  /** The public id of the newest task. */
  async lastTaskId(): Promise<string> {
    return this.store.ids.encode((await this.tasks()).at(-1)!.id);
  }

  /** An agent takes the next task. */
  async claim(): Promise<Grant> {
    const claim = {
      agentId: 'a1',
      instanceId: 'i1',
      queues: ['default/shell'],
      max: 1,
      leaseMs: 30_000,
      holding: null,
    };
    const [grants] = await this.store.write(new TaskLine().claim, [claim]);
    if (!grants?.[0]) throw new Error('there is no task to claim');
    return grants[0];
  }

  /** Its agent reports, in one batch. */
  async report(grant: Grant, ...news: RunNews[]): Promise<void> {
    const reports = news.map((item) => {
      this.#seq += 1;
      return { agentId: 'a1', runId: grant.runId, leaseToken: grant.leaseToken, seq: this.#seq, news: item };
    });
    await this.store.write(reportRunsVerb(this.#emitTasks), reports);
  }

  /** The outbox tells what became of messages. */
  async letters(...events: OutboxEvent[]): Promise<void> {
    await this.store.transact('test.letters', async (tx) => this.#emitLetters(tx, events));
  }

  async #halt(): Promise<void> {
    await this.intake.stop();
    await this.followup.stop();
    await this.store.close();
  }

  async #wire(): Promise<void> {
    const { lang = 'auto', cards } = this.options;
    const log = silentLog;
    const tasks = new EventQueue<TaskEvent>();
    const messages = new EventQueue<OutboxEvent>();
    this.store = openSqlite({ path: join(this.#folder, 'errand.db'), clock: this.clock });
    this.outbox = createOutbox({ instant: new Set(['webchat']), emit: (tx, events) => messages.emit(tx, events) });
    this.templates = await loadTemplates(join(this.#folder, 'templates'));
    const { store, outbox, templates } = this;
    const titleOf = (template: string, inLang: Lang) => templates.get(template)?.title[inLang];
    const notifier = createNotifier({ outbox, ids: store.ids, titleOf, lang, ...(cards && { cards }) });
    tasks.subscribe(followTasks);
    tasks.subscribe(buryDead);
    tasks.subscribe(async (tx, events) => {
      tx.afterCommit(() => void this.taskEvents.push(...events));
      await notifier.onTaskEvents(tx, events);
    });
    messages.subscribe((tx, events) => notifier.onOutboxEvents(tx, events));
    store.onBeforeCommit(async (tx) => {
      await this.sabotage(tx);
      await tasks.drain(tx);
      await messages.drain(tx);
    });
    this.#emitTasks = (tx, events) => tasks.emit(tx, events);
    this.#emitLetters = (tx, events) => messages.emit(tx, events);
    const emitTasks = this.#emitTasks;
    this.followup = createFollowup({
      store,
      log,
      templates,
      outbox,
      emitTasks,
      timeZone: 'UTC',
      lang,
      refusals: this.refusals,
      retryPauseMs: 1,
    });
    this.rooms = {
      ids: store.ids,
      templates,
      outbox,
      emitTasks,
      lang,
      ask: (tx, errands) => this.followup.ask(tx, errands),
      why: new TaskExplainer({
        store,
        clock: this.clock,
        registry: new AgentRegistry({ store, clock: this.clock, log, emit: emitTasks, offlineMs: 90_000 }),
        line: new TaskLine(),
        labelSets: () => [],
        leaseMs: 30_000,
        cancelGraceMs: 20_000,
      }),
    };
    this.intake = createIntake({ store, log, rooms: this.rooms, refusals: this.refusals, retryPauseMs: 1 });
    this.port = createChannelPort({
      store,
      channel: 'telegram',
      account: 'default',
      outbox,
      onStored: () => this.intake.wake(),
    });
  }
}
