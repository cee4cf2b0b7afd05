import { AgentGateway } from './agents/gateway.ts';
import { Dispatch } from './agents/dispatch.ts';
import { AgentRegistry } from './agents/registry.ts';
import { Sweeper } from './agents/sweeper.ts';
import { AgentTokens } from './agents/tokens.ts';
import type { Channel, ChannelPort } from './channels/channel.ts';
import { createTelegramChannel } from './channels/telegram/channel.ts';
import { createWebchatChannel } from './channels/webchat/channel.ts';
import { DUPLICATE_WINDOW_MS } from './channels/wecom/recent.ts';
import { createWecomChannel } from './channels/wecom/wecom-channel.ts';
import { type Clock, systemClock } from './clock.ts';
import { COMMANDS } from './commands/registry.ts';
import { databasePath, type GatewaySettings } from './config/gateway.ts';
import { followTasks } from './flows/follow.ts';
import { assignmentOf } from './flows/assignment.ts';
import { Submitter } from './flows/submit.ts';
import { loadTemplates, packagedTemplatesDir, problemText, type TemplateRegistry } from './flows/templates.ts';
import { createFollowup, type Followup } from './followup/drain.ts';
import { AdminAuth, adminToken } from './http/auth.ts';
import { HotRoutes } from './http/hot.ts';
import { hotRoutes } from './http/hot-routes.ts';
import type { Rooms } from './http/rooms.ts';
import { addRoutes } from './http/routes.ts';
import { type HttpServer, startHttpServer } from './http/server.ts';
import { createChannelPort } from './intake/inbox.ts';
import { createIntake } from './intake/intake.ts';
import type { Log } from './log.ts';
import { createNotifier } from './notifications/notifier.ts';
import { createDelivery, type Delivery } from './outbox/delivery.ts';
import { createOutbox, type Outbox } from './outbox/enqueue.ts';
import type { OutboxEvent } from './outbox/message.ts';
import type { Service } from './service.ts';
import { EventQueue } from './store/events.ts';
import { openSqlite } from './store/sqlite.ts';
import type { Store } from './store/store.ts';
import type { Tx } from './store/tx.ts';
import type { TaskEvent } from './tasks/task.ts';
import { createFinishedTasks, type FinishedTasks } from './telemetry/finished.ts';
import { VERSION } from './version.ts';

/** The composition root: knows every room, and hands lower ones their in-transaction subscribers. */
export interface GatewayOptions {
  settings: GatewaySettings;
  log: Log;
  clock?: Clock;
}

export interface Gateway {
  /** Where it listens, for example `http://127.0.0.1:8787`. */
  readonly url: string;
  readonly adminToken: string;
  readonly rooms: Rooms;
  /** Graceful: no new work, running requests and sends end, everything else is rows. */
  stop(): Promise<void>;
}

/** @throws AppError store_locked, invalid_config: with nothing left running */
export async function startGateway({ settings, log, clock = systemClock }: GatewayOptions): Promise<Gateway> {
  const token = adminToken(settings.stateDir, settings.adminToken);
  log.addSecret(token);
  const store = openSqlite({ path: databasePath(settings.stateDir), clock });
  const started: Service[] = [];
  const stop = async () => {
    for (const service of started.splice(0).reverse()) await service.stop();
    await store.close();
  };
  try {
    const house = await build(settings, store, log, clock, token);
    for (const service of house.services) {
      await service.start();
      started.push(service);
    }
    const { host, port } = house.server().address;
    const url = `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
    log.info('gateway.started', { url, version: VERSION, channels: [...house.rooms.channels.keys()] });
    warnOffLoopback(settings, log);
    return { url, adminToken: token, rooms: house.rooms, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

interface House {
  rooms: Rooms;
  /** In the order in which they start; they stop the other way round. */
  services: Service[];
  server(): HttpServer;
}

async function build(settings: GatewaySettings, store: Store, log: Log, clock: Clock, token: string): Promise<House> {
  const templates = await loadTemplates(settings.templatesDir ?? packagedTemplatesDir(), { log });
  for (const problem of templates.problems()) log.error('template.bad', { problem: problemText(problem) });
  const bus = new EventQueue<TaskEvent>();
  const letters = new EventQueue<OutboxEvent>();
  const emit = (tx: Tx, events: readonly TaskEvent[]) => bus.emit(tx, events);
  const outbox = createOutbox({ instant: new Set(['webchat']), emit: (tx, events) => letters.emit(tx, events) });
  const agents = agentRooms(settings, store, log, clock, emit, templates);
  const chat = new ChatChanges();
  const followup = followupOf(settings, store, log, outbox, emit, templates);
  const intake = createIntake({
    store,
    log,
    rooms: { ids: store.ids, templates, outbox, emitTasks: emit, lang: settings.lang, ask: followup.ask },
  });
  const { channels, webchatPort } = openChannels(settings, store, log, clock, outbox, () => intake.wake());
  const delivery = createDelivery({ store, clock, log, channels, outbox, safeRepeat: new Map([['wecom', DUPLICATE_WINDOW_MS]]) });
  const rooms: Rooms = {
    settings, version: VERSION, clock, log, store, emit, templates, outbox, channels, webchatPort, ...agents,
    admin: new AdminAuth(token),
    submitter: new Submitter({ store, ids: store.ids, clock, templates, timeZone: settings.timeZone, emit }),
    onChatChange: (listener) => chat.listen(listener),
    startedAt: clock.now(),
  };
  subscribe(rooms, bus, letters, delivery, chat);
  const finished = createFinishedTasks();
  bus.subscribe((tx, events) => finished.onTaskEvents(tx, events));
  const http = httpService(rooms, finished);
  const sweeper = new Sweeper({ ...agents, store, clock, log, emit, leaseMs: settings.leaseMs, cancelGraceMs: settings.cancelGraceMs });
  const polls: Service = { start: async () => undefined, stop: async () => (agents.dispatch.stop(), agents.gateway.stop()) };
  return {
    rooms,
    services: [templates.watch(), sweeper, delivery, followup, intake, http, polls, ...[...channels.values()].map(asService)],
    server: () => http.server!,
  };
}

function agentRooms(
  settings: GatewaySettings,
  store: Store,
  log: Log,
  clock: Clock,
  emit: Rooms['emit'],
  templates: TemplateRegistry,
): Pick<Rooms, 'tokens' | 'registry' | 'dispatch' | 'gateway'> {
  const { leaseMs, heartbeatMs, offlineMs } = settings;
  const tokens = new AgentTokens(store);
  const registry = new AgentRegistry({ store, clock, log, emit, offlineMs });
  const labelSets = () => templates.list().flatMap((template) => (template.labels === null ? [] : [template.labels]));
  const dispatch = new Dispatch({ store, clock, log, leaseMs, labelSets });
  const gateway = new AgentGateway({
    store, ids: store.ids, clock, log, emit, registry, dispatch, leaseMs, heartbeatMs, version: VERSION,
    assignmentOf: (grant) => assignmentOf(templates, store.ids, grant),
  });
  return { tokens, registry, dispatch, gateway };
}

function followupOf(settings: GatewaySettings, store: Store, log: Log, outbox: Outbox, emit: Rooms['emit'], templates: TemplateRegistry): Followup {
  return createFollowup({ store, log, templates, outbox, emitTasks: emit, timeZone: settings.timeZone, lang: settings.lang });
}

/** Events are drained in this order, inside the transaction that made them: flows, notifications, then the agents that wait. */
function subscribe(rooms: Rooms, bus: EventQueue<TaskEvent>, letters: EventQueue<OutboxEvent>, delivery: Delivery, chat: ChatChanges): void {
  const { store, templates, outbox, dispatch, gateway, settings } = rooms;
  const notifier = createNotifier({
    outbox,
    ids: store.ids,
    titleOf: (id, lang) => templates.get(id)?.title[lang],
    lang: settings.lang,
  });
  bus.subscribe(followTasks);
  bus.subscribe((tx, events) => notifier.onTaskEvents(tx, events));
  bus.subscribe((tx, events) => gateway.onTaskEvents(tx, events));
  bus.subscribe((tx, events) => dispatch.onTaskEvents(tx, events));
  letters.subscribe((tx, events) => notifier.onOutboxEvents(tx, events));
  letters.subscribe(async (tx, events) => {
    if (events.some((event) => event.type === 'outbox.enqueued')) tx.afterCommit(() => delivery.wake());
    const keys = new Set(events.flatMap((event) => (event.type === 'outbox.sent' && event.channel === 'webchat' ? [event.sessionKey] : [])));
    if (keys.size > 0) tx.afterCommit(() => chat.tell(keys));
  });
  store.onBeforeCommit(async (tx) => {
    await bus.drain(tx);
    await letters.drain(tx);
  });
}

/** Who watches web chats. */
class ChatChanges {
  readonly #listeners = new Set<(sessionKey: string) => void>();

  listen(listener: (sessionKey: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  tell(sessionKeys: Iterable<string | null>): void {
    for (const key of sessionKeys) if (key !== null) for (const listener of this.#listeners) listener(key);
  }
}

function openChannels(
  settings: GatewaySettings,
  store: Store,
  log: Log,
  clock: Clock,
  outbox: Outbox,
  onStored: () => void,
): { channels: Map<string, Channel>; webchatPort: ChannelPort } {
  // One gateway per SQLite file: a restarted one is the same holder and need not wait for its predecessor's leases.
  const port = (channel: Channel['name']) => createChannelPort({ store, channel, account: 'default', outbox, onStored, holder: 'gateway' });
  const webchatPort = port('webchat');
  const channels = [createWebchatChannel({ account: 'default', port: webchatPort, clock, log })];
  if (settings.telegram) {
    const { publicUrl } = settings;
    const commands = COMMANDS.map(({ name, help }) => ({ command: name, description: help.en }));
    log.addSecret(settings.telegram.token);
    channels.push(
      createTelegramChannel({
        ...settings.telegram, account: 'default', port: port('telegram'), clock, log, commands,
        ...(settings.telegram.mode === 'webhook' ? { publicUrl } : {}),
      }),
    );
  }
  if (settings.wecom) channels.push(createWecomChannel({ ...settings.wecom, account: 'default', port: port('wecom'), clock, log }));
  return { channels: new Map(channels.map((channel) => [`${channel.name}/${channel.account}`, channel])), webchatPort };
}

function asService(channel: Channel): Service {
  return { start: () => channel.start(), stop: () => channel.stop() };
}

function httpService(rooms: Rooms, finished: FinishedTasks): Service & { server: HttpServer | undefined } {
  const hot = new HotRoutes(hotRoutes(rooms), rooms.log);
  const { host, port } = rooms.settings;
  const doors = [...rooms.channels.values()].flatMap((channel) => channel.doors);
  return {
    server: undefined,
    async start() {
      this.server = await startHttpServer({ host, port, log: rooms.log, hot, doors, routes: (app) => addRoutes(app, rooms, finished) });
    },
    async stop() {
      await this.server?.stop();
    },
  };
}

function warnOffLoopback(settings: GatewaySettings, log: Log): void {
  const loopback = settings.host === 'localhost' || settings.host === '::1' || settings.host.startsWith('127.');
  if (!loopback && !settings.publicUrl.startsWith('https:')) {
    log.warn('gateway.exposed', {
      host: settings.host,
      advice: 'this address is not loopback and the traffic is not encrypted: put an HTTPS proxy in front and set ERRAND_PUBLIC_URL',
    });
  }
}
