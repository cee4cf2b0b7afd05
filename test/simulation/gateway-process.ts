import { Dispatch } from '../../src/agents/dispatch.ts';
import { AgentGateway } from '../../src/agents/gateway.ts';
import { AgentRegistry } from '../../src/agents/registry.ts';
import { Sweeper } from '../../src/agents/sweeper.ts';
import type { Base } from '../../src/app/base.ts';
import { SAFE_REPEAT } from '../../src/app/channels.ts';
import { subscribe } from '../../src/app/events.ts';
import { readGatewaySettings } from '../../src/config/gateway.ts';
import { AppError } from '../../src/errors.ts';
import { assignmentOf } from '../../src/flows/assignment.ts';
import { Submitter } from '../../src/flows/submit.ts';
import { breakerPolicies } from '../../src/flows/template-breakers.ts';
import type { TemplateRegistry } from '../../src/flows/templates.ts';
import { silentLog } from '../../src/log.ts';
import { createDelivery, type Delivery } from '../../src/outbox/delivery.ts';
import { createOutbox } from '../../src/outbox/enqueue.ts';
import type { OutboxEvent } from '../../src/outbox/message.ts';
import { EventQueue } from '../../src/store/events.ts';
import { openSqlite } from '../../src/store/sqlite.ts';
import type { Verb } from '../../src/store/tx.ts';
import { Breakers } from '../../src/tasks/breakers.ts';
import { cancelTasksVerb, type TaskOrder } from '../../src/tasks/cancel.ts';
import { TaskLine } from '../../src/tasks/claim.ts';
import { Controls } from '../../src/tasks/controls.ts';
import { pauseTasksVerb, resumeTasksVerb } from '../../src/tasks/controls-tasks.ts';
import { retryTasksVerb } from '../../src/tasks/retry.ts';
import type { TaskEvent } from '../../src/tasks/task.ts';
import { BAD_UNIT, MortalStore } from './mortal-store.ts';
import type { Platforms } from './platform.ts';
import type { VirtualTime } from './virtual-time.ts';

export const LEASE_MS = 30_000;
export const CANCEL_GRACE_MS = 20_000;
const OFFLINE_MS = 90_000;
/** A platform to which messages are sent. */
export type SentChannel = 'telegram' | 'wecom';

/** The other side cannot be reached or has no answer for now: what became of the request nobody knows. */
export class Unreachable extends Error {}

export interface GatewayPlace {
  readonly folder: string;
  readonly time: VirtualTime;
  readonly templates: TemplateRegistry;
  readonly platforms: Platforms;
  readonly channel: SentChannel;
  onTaskEvents(events: readonly TaskEvent[]): void;
  /** Senders may be unable to say what became of the messages in their hands. */
  onDoubt(): void;
}

/** One life of the gateway: the rooms of the application on the real store, without HTTP. It can die at any await. */
export class GatewayProcess {
  readonly store: MortalStore;
  readonly registry: AgentRegistry;
  readonly breakers: Breakers;
  readonly controls: Controls;
  readonly line: TaskLine;
  readonly dispatch: Dispatch;
  readonly gateway: AgentGateway;
  readonly submitter: Submitter;
  readonly base: Base;
  /** What a person can say about one task. */
  readonly verbs: Record<'cancel' | 'retry' | 'pause' | 'resume', Verb<TaskOrder, { result: string }>>;
  readonly #sweeper: Sweeper;
  readonly #delivery: Delivery;
  readonly #died: Promise<void>;

  constructor(place: GatewayPlace) {
    const { time, templates } = place;
    let tellDeath: () => void = () => undefined;
    this.#died = new Promise((resolve) => {
      tellDeath = resolve;
    });
    const real = openSqlite({ path: databaseIn(place.folder), clock: time });
    const death = () => {
      time.dropTimers();
      tellDeath();
    };
    this.store = new MortalStore(real, { death, badUnit: () => place.onDoubt() });
    this.base = baseOf(place, this.store);
    const { emit } = this.base;
    this.registry = new AgentRegistry({ ...this.base, offlineMs: OFFLINE_MS });
    const labelSets = () => templates.list().flatMap(({ labels }) => (labels === null ? [] : [labels]));
    this.breakers = this.#breakersOf(templates);
    this.line = new TaskLine({
      breakers: this.breakers,
      limitsOf: (id) => templates.get(id)?.limits,
      pending: (tx) => this.base.taskEvents.pending(tx),
    });
    this.controls = new Controls({ line: this.line, log: silentLog, onFreed: () => this.#serveAgain() });
    this.dispatch = new Dispatch({ ...this.base, line: this.line, leaseMs: LEASE_MS, labelSets });
    this.gateway = new AgentGateway({
      ...this.base,
      ids: this.store.ids,
      registry: this.registry,
      dispatch: this.dispatch,
      leaseMs: LEASE_MS,
      heartbeatMs: 10_000,
      version: '1.0.0',
      assignmentOf: (grant) => assignmentOf(templates, this.store.ids, grant),
    });
    this.submitter = new Submitter({
      ...this.base,
      ids: this.store.ids,
      timeZone: 'UTC',
      patienceMs: () => this.dispatch.patienceMs(),
    });
    this.verbs = {
      cancel: cancelTasksVerb(emit),
      retry: retryTasksVerb(emit),
      pause: pauseTasksVerb(emit),
      resume: resumeTasksVerb(emit),
    };
    this.#delivery = this.#deliveryTo(place);
    this.#sweeper = new Sweeper({ ...this.base, ...this, leaseMs: LEASE_MS, cancelGraceMs: CANCEL_GRACE_MS });
    this.#subscribe(place);
  }

  get dead(): boolean {
    return this.store.dead;
  }

  /** Resolves when it works, or has died on the way. */
  async start(): Promise<void> {
    const work = async () => {
      await this.controls.load(this.store);
      await this.#sweeper.start();
      await this.#delivery.start();
    };
    await Promise.race([work(), this.#died]);
  }

  /** A request and its answer. @throws Unreachable when it dies meanwhile, or could not store what it had to */
  async call<T>(request: () => Promise<T>): Promise<T> {
    try {
      const answer = await Promise.race([request(), this.#died]);
      if (this.dead) throw new Unreachable('the gateway died');
      return answer as T;
    } catch (error) {
      if (error instanceof AppError && error.code === 'storage_full') throw new Unreachable(error.message);
      if (error instanceof Error && error.message === BAD_UNIT) throw new Unreachable(error.message);
      throw error;
    }
  }

  /** Frees the files for the next life. */
  bury(): Promise<void> {
    this.store.die();
    return this.store.close();
  }

  #breakersOf(templates: TemplateRegistry): Breakers {
    return new Breakers({ policies: breakerPolicies(templates), log: silentLog, onFreed: () => this.#serveAgain() });
  }

  #serveAgain(): void {
    this.store.transact('simulation.freed', (tx) => this.dispatch.serveDue(tx)).catch(() => undefined);
  }

  #deliveryTo({ platforms, channel: name }: GatewayPlace): Delivery {
    const channel = platforms.channel(
      name,
      () => this.dead,
      (id) => this.store.ids.decode(id)!,
    );
    return createDelivery({
      ...this.base,
      channels: new Map([[`${name}/default`, channel]]),
      safeRepeat: SAFE_REPEAT,
    });
  }

  #subscribe(place: GatewayPlace): void {
    this.base.taskEvents.subscribe(async (tx, events) => tx.afterCommit(() => place.onTaskEvents(events)));
    subscribe(this.base, this, {
      wakeDelivery: () => this.#delivery.wake(),
      chatChanged: () => undefined,
      finished: { onTaskEvents: async () => undefined, counts: () => new Map() },
    });
  }
}

export function databaseIn(folder: string): string {
  return `${folder}/errand.db`;
}

function baseOf({ folder, time, templates }: GatewayPlace, store: MortalStore): Base {
  const taskEvents = new EventQueue<TaskEvent>();
  const outboxEvents = new EventQueue<OutboxEvent>();
  return {
    settings: readGatewaySettings({ ERRAND_STATE_DIR: folder, ERRAND_LANG: 'en' }),
    store,
    log: silentLog,
    clock: time,
    templates,
    outbox: createOutbox({ instant: new Set(['webchat']), emit: (tx, events) => outboxEvents.emit(tx, events) }),
    emit: (tx, events) => taskEvents.emit(tx, events),
    taskEvents,
    outboxEvents,
  };
}
