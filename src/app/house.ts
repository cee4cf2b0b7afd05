import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Dispatch } from '../agents/dispatch.ts';
import { TaskExplainer } from '../agents/explainer.ts';
import { AgentGateway } from '../agents/gateway.ts';
import { JoinTokens } from '../agents/join-tokens.ts';
import { AgentQuota } from '../agents/quota.ts';
import { AgentRegistry } from '../agents/registry.ts';
import { Sweeper } from '../agents/sweeper.ts';
import { TakerHints } from '../agents/taker-hints.ts';
import { AgentTokens } from '../agents/tokens.ts';
import { Artifacts } from '../artifacts/artifacts.ts';
import { currentBootId } from '../boot.ts';
import type { Channel } from '../channels/channel.ts';
import { platformRates } from '../channels/rates.ts';
import type { Clock } from '../clock.ts';
import { ChatLogFollows } from '../commands/logs-follow.ts';
import type { GatewaySettings } from '../config/gateway.ts';
import { AppError } from '../errors.ts';
import { assignmentOf } from '../flows/assignment.ts';
import { Submitter } from '../flows/submit.ts';
import { breakerPolicies } from '../flows/template-breakers.ts';
import { loadTemplates, packagedTemplatesDir } from '../flows/templates.ts';
import { createFollowup } from '../followup/drain.ts';
import type { QuietRuns } from '../health/quiet-runs.ts';
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
import { Releases } from '../releases/releases.ts';
import type { Service } from '../service.ts';
import { EventQueue } from '../store/events.ts';
import type { Store } from '../store/store.ts';
import { Breakers } from '../tasks/breakers.ts';
import { TaskLine } from '../tasks/claim.ts';
import type { TaskEvent } from '../tasks/task.ts';
import { createFinishedTasks, type FinishedTasks } from '../telemetry/finished.ts';
import { createRefusals, type Refusals } from '../telemetry/refusals.ts';
import { VERSION } from '../version.ts';
import type { Base } from './base.ts';
import { openChannels, SAFE_REPEAT } from './channels.ts';
import { controlRooms, serveAgain } from './controls.ts';
import { subscribe } from './events.ts';
import { agentAlerts, quietRuns } from './health.ts';
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
  const breakers: Breakers = new Breakers({
    policies: breakerPolicies(base.templates),
    log,
    onFreed: serveAgain(base, () => agents),
  });
  const agents = agentRooms(base, breakers, await currentBootId());
  await agents.registry.roster.load(store);
  const { controls, laneWatch } = await controlRooms(base, agents);
  const isDraining = () => controls.drain !== null;
  const chat = new ChatChanges();
  const finished = createFinishedTasks();
  const refusals = createRefusals();
  const artifacts = new Artifacts({ store, log, folder: join(settings.stateDir, 'artifacts') });
  const { followup, intake, open, delivery, logFollows } = await chatRooms(base, agents, { isDraining, refusals });
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
    artifacts,
    breakers,
    controls,
    taskAudit,
    refusals,
    ...open,
    version: VERSION,
    admin: new AdminAuth(token),
    submitter: submitterOf(base, agents, isDraining),
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
  const chats = [delivery, followup, logFollows, intake];
  const watches = [sweeper, laneWatch, agents.quiet, agentAlerts(base)];
  const channels = [...open.channels.values()].map(asService);
  const services = [base.templates.watch(), agents.releases, ...watches, ...chats, http, retention, artifacts]
    .concat(polls(agents))
    .concat(channels);
  return { rooms, services, server: () => http.server! };
}

async function lay(settings: GatewaySettings, store: Store, log: Log, clock: Clock): Promise<Base> {
  const templates = await loadTemplates(templatesFolder(settings), { log });
  const taskEvents = new EventQueue<TaskEvent>();
  const outboxEvents = new EventQueue<OutboxEvent>();
  const outbox = createOutbox({
    instant: new Set(['webchat']),
    emit: (tx, events) => outboxEvents.emit(tx, events),
    rates: platformRates,
  });
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

/** From a stored message to an errand, and from an answer to its chat. */
async function chatRooms(
  base: Base,
  { why, hints }: { why: Rooms['why']; hints: TakerHints },
  { isDraining, refusals }: { isDraining: () => boolean; refusals: Refusals },
) {
  const { store, clock, log, templates, outbox, emit } = base;
  const { timeZone, lang, staleAfterMs } = base.settings;
  const hintFor = hints.hintFor.bind(hints);
  const followup = createFollowup({
    store,
    log,
    templates,
    outbox,
    emitTasks: emit,
    timeZone,
    lang,
    isDraining,
    hintFor,
    refusals,
  });
  const logFollows = new ChatLogFollows({ ...base, emit: (tx, events) => base.outboxEvents.emit(tx, events) });
  const rooms = {
    ...{ ids: store.ids, templates, outbox, emitTasks: emit, lang, ask: followup.ask, why, isDraining },
    wakeLogFollows: () => logFollows.wake(),
  };
  const intake = createIntake({ store, log, rooms, refusals, staleAfterMs });
  const open = await openChannels(base, () => intake.wake());
  const delivery = createDelivery({ store, clock, log, channels: open.channels, outbox, safeRepeat: SAFE_REPEAT });
  return { followup, intake, open, delivery, logFollows };
}

function submitterOf(
  base: Base,
  { dispatch, hints }: { dispatch: Dispatch; hints: TakerHints },
  isDraining: () => boolean,
): Submitter {
  const { store, settings } = base;
  const patienceMs = () => dispatch.patienceMs();
  const hintFor = hints.hintFor.bind(hints);
  return new Submitter({ ...base, ids: store.ids, timeZone: settings.timeZone, patienceMs, isDraining, hintFor });
}

function agentRooms(
  base: Base,
  breakers: Breakers,
  bootId: string,
): Pick<Rooms, 'tokens' | 'joins' | 'registry' | 'dispatch' | 'line' | 'gateway' | 'why' | 'releases'> & {
  hints: TakerHints;
  quiet: QuietRuns;
} {
  const { store, settings, templates } = base;
  const { leaseMs, heartbeatMs, offlineMs, cancelGraceMs } = settings;
  const tokens: AgentTokens = new AgentTokens(store, {
    quota: new AgentQuota(settings.agentRate),
    onRevoked: (agentId) => gateway.dismiss(agentId),
  });
  const registry = new AgentRegistry({
    ...base,
    offlineMs,
    bootId,
    isRevoked: (identity) => tokens.isRevoked(identity),
  });
  const labelSets = labelSetsOf(templates);
  const hints = new TakerHints({ ...base, registry, labelSets });
  const line = new TaskLine({
    breakers,
    limitsOf: (id) => templates.get(id)?.limits,
    pending: (tx) => base.taskEvents.pending(tx),
  });
  const dispatch = new Dispatch({ ...base, line, leaseMs, labelSets });
  const releases = new Releases({ ...base, dir: join(settings.stateDir, 'releases') });
  const quiet = quietRuns(base);
  const gateway = new AgentGateway({
    ...base,
    ids: store.ids,
    registry,
    dispatch,
    leaseMs,
    heartbeatMs,
    isQuiet: (runId) => quiet.take(runId),
    version: VERSION,
    releases,
    assignmentOf: (grant) => assignmentOf(templates, store.ids, grant),
  });
  const why = new TaskExplainer({ ...base, registry, line, labelSets, leaseMs, cancelGraceMs });
  const joins = new JoinTokens(store, tokens);
  return { tokens, joins, registry, dispatch, line, gateway, why, releases, hints, quiet };
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
