import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { Dispatch } from '../agents/dispatch.ts';
import { AgentGateway } from '../agents/gateway.ts';
import { AgentRegistry } from '../agents/registry.ts';
import { Sweeper } from '../agents/sweeper.ts';
import { AgentTokens } from '../agents/tokens.ts';
import type { Channel } from '../channels/channel.ts';
import type { Clock } from '../clock.ts';
import type { GatewaySettings } from '../config/gateway.ts';
import { AppError } from '../errors.ts';
import { assignmentOf } from '../flows/assignment.ts';
import { Submitter } from '../flows/submit.ts';
import { breakerPolicies } from '../flows/template-breakers.ts';
import { loadTemplates, packagedTemplatesDir } from '../flows/templates.ts';
import { createFollowup } from '../followup/drain.ts';
import { AdminAuth } from '../http/auth.ts';
import { HotRoutes } from '../http/hot.ts';
import { hotRoutes } from '../http/hot-routes.ts';
import type { Rooms } from '../http/rooms.ts';
import { addRoutes } from '../http/routes.ts';
import { type HttpServer, startHttpServer } from '../http/server.ts';
import { createIntake } from '../intake/intake.ts';
import type { Log } from '../log.ts';
import { createDelivery } from '../outbox/delivery.ts';
import { createOutbox } from '../outbox/enqueue.ts';
import type { OutboxEvent } from '../outbox/message.ts';
import type { Service } from '../service.ts';
import { EventQueue } from '../store/events.ts';
import type { Store } from '../store/store.ts';
import { Breakers } from '../tasks/breakers.ts';
import { TaskLine } from '../tasks/claim.ts';
import type { TaskEvent } from '../tasks/task.ts';
import { createFinishedTasks, type FinishedTasks } from '../telemetry/finished.ts';
import { VERSION } from '../version.ts';
import type { Base } from './base.ts';
import { openChannels, SAFE_REPEAT } from './channels.ts';
import { subscribe } from './events.ts';
import { upkeepRooms } from './upkeep.ts';

/** All rooms, wired, nothing started. */
export interface House {
  readonly rooms: Rooms;
  /** In the order in which they start; they stop the other way round. */
  readonly services: readonly Service[];
  /** Once started. */
  server(): HttpServer;
}

export async function buildHouse(
  settings: GatewaySettings,
  store: Store,
  log: Log,
  clock: Clock,
  token: string,
): Promise<House> {
  const base = await lay(settings, store, log, clock);
  const breakers: Breakers = breakerRoom(base, () => agents.dispatch);
  const agents = agentRooms(base, breakers);
  const chat = new ChatChanges();
  const finished = createFinishedTasks();
  const { templates, outbox, emit } = base;
  const { timeZone, lang } = settings;
  const followup = createFollowup({ store, log, templates, outbox, emitTasks: emit, timeZone, lang });
  const commandRooms = { ids: store.ids, templates, outbox, emitTasks: emit, lang, ask: followup.ask };
  const intake = createIntake({ store, log, rooms: commandRooms });
  const open = openChannels(base, () => intake.wake());
  const delivery = createDelivery({ store, clock, log, channels: open.channels, outbox, safeRepeat: SAFE_REPEAT });
  const { retention, taskAudit } = upkeepRooms(
    base,
    { ...agents, ...open },
    {
      sweep: () => {
        agents.line.forget();
        return sweeper.sweepOnce();
      },
      wakeDelivery: () => delivery.wake(),
    },
  );
  const rooms: Rooms = {
    ...base,
    ...agents,
    breakers,
    taskAudit,
    ...open,
    version: VERSION,
    admin: new AdminAuth(token),
    submitter: new Submitter({
      store,
      ids: store.ids,
      clock,
      templates,
      timeZone,
      emit,
      patienceMs: () => agents.dispatch.patienceMs(),
    }),
    onChatChange: (listener) => chat.listen(listener),
    startedAt: clock.now(),
  };
  subscribe(
    base,
    { ...agents, breakers },
    { wakeDelivery: () => delivery.wake(), chatChanged: (keys) => chat.tell(keys), finished },
  );
  const http = httpService(rooms, finished);
  const sweeper = new Sweeper({
    ...base,
    ...agents,
    breakers,
    leaseMs: settings.leaseMs,
    cancelGraceMs: settings.cancelGraceMs,
  });
  const channels = [...open.channels.values()].map(asService);
  const services = [
    templates.watch(),
    sweeper,
    delivery,
    followup,
    intake,
    http,
    retention,
    polls(agents),
    ...channels,
  ];
  return { rooms, services, server: () => http.server! };
}

async function lay(settings: GatewaySettings, store: Store, log: Log, clock: Clock): Promise<Base> {
  const templates = await loadTemplates(templatesFolder(settings), { log });
  const taskEvents = new EventQueue<TaskEvent>();
  const outboxEvents = new EventQueue<OutboxEvent>();
  const outbox = createOutbox({ instant: new Set(['webchat']), emit: (tx, events) => outboxEvents.emit(tx, events) });
  const emit: Base['emit'] = (tx, events) => taskEvents.emit(tx, events);
  return { settings, store, log, clock, templates, outbox, emit, taskEvents, outboxEvents };
}

/** The configured folder, else `./templates`, else the packaged examples. */
function templatesFolder({ templatesDir }: GatewaySettings): string {
  if (templatesDir === undefined) return existsSync('templates') ? resolve('templates') : packagedTemplatesDir();
  if (!existsSync(templatesDir)) {
    throw new AppError('invalid_config', `ERRAND_TEMPLATES_DIR: there is no folder ${templatesDir}`, {
      field: 'ERRAND_TEMPLATES_DIR',
    });
  }
  return templatesDir;
}

function agentRooms(
  base: Base,
  breakers: Breakers,
): Pick<Rooms, 'tokens' | 'registry' | 'dispatch' | 'line' | 'gateway'> {
  const { store, settings, templates } = base;
  const { leaseMs, heartbeatMs, offlineMs } = settings;
  const registry = new AgentRegistry({ ...base, offlineMs });
  const labelSets = labelSetsOf(templates);
  const line = new TaskLine({
    breakers,
    limitsOf: (id) => templates.get(id)?.limits,
    pending: (tx) => base.taskEvents.pending(tx),
  });
  const dispatch = new Dispatch({ ...base, line, leaseMs, labelSets });
  const gateway = new AgentGateway({
    ...base,
    ids: store.ids,
    registry,
    dispatch,
    leaseMs,
    heartbeatMs,
    version: VERSION,
    assignmentOf: (grant) => assignmentOf(templates, store.ids, grant),
  });
  return { tokens: new AgentTokens(store), registry, dispatch, line, gateway };
}

/** The same array until the templates are read again. */
function labelSetsOf(templates: Base['templates']): () => readonly Readonly<Record<string, string>>[] {
  let seen: ReturnType<typeof templates.list> | undefined;
  let sets: Readonly<Record<string, string>>[] = [];
  return () => {
    if (templates.list() !== seen) {
      seen = templates.list();
      sets = seen.flatMap((template) => (template.labels === null ? [] : [template.labels]));
    }
    return sets;
  };
}

/** A breaker that closes lets tasks go: the agents that wait for work look again. */
function breakerRoom({ templates, log, store }: Base, dispatch: () => Dispatch): Breakers {
  const onFreed = () => {
    store
      .transact('breaker.freed', (tx) => dispatch().serveDue(tx))
      .catch((error: unknown) => log.error('breaker.freed_failed', { error }));
  };
  return new Breakers({ policies: breakerPolicies(templates), log, onFreed });
}

/** Long polls are sent away before the server stops, else it would wait for them. */
function polls({ dispatch, gateway }: Pick<Rooms, 'dispatch' | 'gateway'>): Service {
  return {
    start: async () => undefined,
    stop: async () => {
      dispatch.stop();
      gateway.stop();
    },
  };
}

function asService(channel: Channel): Service {
  return { start: () => channel.start(), stop: () => channel.stop() };
}

function httpService(rooms: Rooms, finished: FinishedTasks): Service & { server: HttpServer | undefined } {
  const hot = new HotRoutes(hotRoutes(rooms), rooms.log);
  const { host, port } = rooms.settings;
  const doors = [...rooms.channels.values()].flatMap((channel) => channel.doors);
  const routes: Parameters<typeof startHttpServer>[0]['routes'] = (app) => addRoutes(app, rooms, finished);
  return {
    server: undefined,
    async start() {
      this.server = await startHttpServer({ host, port, log: rooms.log, hot, doors, routes });
    },
    async stop() {
      await this.server?.stop();
    },
  };
}

/** Who watches web chats. */
class ChatChanges {
  readonly #listeners = new Set<(sessionKey: string) => void>();

  listen(listener: (sessionKey: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  tell(sessionKeys: Iterable<string>): void {
    for (const key of sessionKeys) for (const listener of this.#listeners) listener(key);
  }
}
