import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Dispatch } from '../../src/agents/dispatch.ts';
import { AgentGateway, type AssignmentOf } from '../../src/agents/gateway.ts';
import type { PullAnswer, RegisterAnswer, Report, ReportAnswer } from '../../src/agents/protocol.ts';
import { AgentRegistry } from '../../src/agents/registry.ts';
import { Sweeper } from '../../src/agents/sweeper.ts';
import type { AgentIdentity } from '../../src/agents/tokens.ts';
import type { Route } from '../../src/channels/channel.ts';
import { type ManualClock, manualClock } from '../../src/clock.ts';
import { followTasks } from '../../src/flows/follow.ts';
import { startFlowsVerb } from '../../src/flows/start.ts';
import { silentLog } from '../../src/log.ts';
import { EventQueue } from '../../src/store/events.ts';
import type { CheckpointTable } from '../../src/store/retry-tables.ts';
import { openSqlite } from '../../src/store/sqlite.ts';
import type { Store } from '../../src/store/store.ts';
import type { EventTable, FlowTable, RunTable, TaskTable } from '../../src/store/tables.ts';
import type { Tx } from '../../src/store/tx.ts';
import { type CancelAnswer, cancelTasksVerb } from '../../src/tasks/cancel.ts';
import { type Claim, type Grant, TaskLine } from '../../src/tasks/claim.ts';
import { createTasksVerb } from '../../src/tasks/create.ts';
import { buryDead } from '../../src/tasks/dead-letters.ts';
import type { GateSources } from '../../src/tasks/gates.ts';
import { watchNeeds } from '../../src/tasks/needs.ts';
import { type ReportOutcome, type RunNews, reportRunsVerb } from '../../src/tasks/report.ts';
import { type RetryAnswer, retryTasksVerb } from '../../src/tasks/retry.ts';
import { type SweepCounts, sweep } from '../../src/tasks/sweep.ts';
import type { CreateAnswer, Emit, NewTask, TaskEvent } from '../../src/tasks/task.ts';

export const START = 1_800_000_000_000;
export const LEASE_MS = 30_000;
export const OFFLINE_MS = 90_000;
export const GRACE_MS = 20_000;

/** A task of no template in particular. */
export function newTask(more: Partial<NewTask> = {}): NewTask {
  return {
    template: 't',
    runtime: 'shell',
    pool: 'default',
    agent: null,
    labels: null,
    lane: 'main',
    serialKey: null,
    args: {},
    idempotencyKey: null,
    sessionKey: null,
    flowId: null,
    source: 'api',
    label: null,
    parentTaskId: null,
    notifyPolicy: null,
    priority: 'normal',
    runAt: null,
    ttlMs: null,
    timeoutMs: 600_000,
    retry: null,
    ...more,
  };
}

export const ROUTE: Route = { channel: 'telegram', account: 'default', chat: '7', chatKind: 'direct' };
export const SESSION = 'agent:main:telegram:direct:7';

export interface CoreOptions {
  /** Of an earlier core, to open its database again; default: a fresh temp folder. */
  folder?: string;
  clock?: ManualClock;
  labelSets?: () => Record<string, string>[];
  assignmentOf?: AssignmentOf;
  gates?: GateSources;
  /** One more subscriber of task events, after the flows. */
  subscriber?: (emit: Emit<TaskEvent>) => (tx: Tx, events: readonly TaskEvent[]) => Promise<void>;
}

/** Of all cores: an agent goes on counting when the gateway starts again. */
let reportSeq = 100;

/** Store, task engine, flows and the agents' gateway on a real file, wired as the application wires them, with a clock that is told. */
export class Core {
  readonly clock: ManualClock;
  readonly store: Store;
  readonly registry: AgentRegistry;
  readonly dispatch: Dispatch;
  readonly line: TaskLine;
  readonly gateway: AgentGateway;
  /** Committed events, in order. */
  readonly events: TaskEvent[] = [];
  /** Names of templates that are gone. */
  readonly gone = new Set<string>();
  readonly folder: string;
  readonly path: string;
  readonly #bus = new EventQueue<TaskEvent>();
  readonly emit = (tx: Tx, events: readonly TaskEvent[]) => this.#bus.emit(tx, events);
  readonly verbs = {
    create: createTasksVerb(this.emit),
    start: startFlowsVerb(this.emit),
    report: reportRunsVerb(this.emit),
    cancel: cancelTasksVerb(this.emit),
    retry: retryTasksVerb(this.emit),
  };
  #monotonic = 0;

  static async open(options: CoreOptions = {}): Promise<Core> {
    return new Core(options.folder ?? (await mkdtemp(join(tmpdir(), 'errand-core-'))), options);
  }

  private constructor(folder: string, options: CoreOptions) {
    this.folder = folder;
    this.path = join(folder, 'errand.db');
    this.clock = options.clock ?? manualClock(START);
    this.store = openSqlite({ path: this.path, clock: this.clock });
    const common = { store: this.store, clock: this.clock, log: silentLog, emit: this.emit };
    this.registry = new AgentRegistry({ ...common, offlineMs: OFFLINE_MS });
    this.line = new TaskLine({ ...options.gates, pending: (tx) => this.#bus.pending(tx) });
    this.dispatch = new Dispatch({
      ...common,
      line: this.line,
      leaseMs: LEASE_MS,
      labelSets: options.labelSets ?? (() => []),
    });
    this.gateway = new AgentGateway({
      ...common,
      ids: this.store.ids,
      registry: this.registry,
      dispatch: this.dispatch,
      leaseMs: LEASE_MS,
      heartbeatMs: 10_000,
      version: '1.2.3',
      assignmentOf: options.assignmentOf ?? ((grant) => this.#assignment(grant)),
    });
    this.#bus.subscribe(followTasks);
    this.#bus.subscribe(watchNeeds({ ids: this.store.ids, emit: this.emit }));
    if (options.subscriber) this.#bus.subscribe(options.subscriber(this.emit));
    this.#bus.subscribe(buryDead);
    this.#bus.subscribe(async (tx, events) => tx.afterCommit(() => void this.events.push(...events)));
    this.#bus.subscribe((tx, events) => this.gateway.onTaskEvents(tx, events));
    this.#bus.subscribe((tx, events) => this.dispatch.onTaskEvents(tx, events));
    this.store.onBeforeCommit((tx) => this.#bus.drain(tx));
  }

  /** Closes the store; the files stay for a next core. */
  async halt(): Promise<void> {
    this.dispatch.stop();
    this.gateway.stop();
    await this.store.close();
  }

  async close(): Promise<void> {
    await this.halt();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** A new process on the same files, at the same time of the same clock. */
  async reopen(): Promise<Core> {
    await this.halt();
    return Core.open({ folder: this.folder, clock: this.clock });
  }

  async create(more: Partial<NewTask> = {}): Promise<number> {
    return (await this.createAll([newTask(more)]))[0]!.id;
  }

  createAll(tasks: readonly NewTask[]): Promise<CreateAnswer[]> {
    return this.store.write(this.verbs.create, tasks);
  }

  /** A task with a flow of a conversation. */
  async ask(more: Partial<NewTask> = {}): Promise<number> {
    const seed = { task: newTask({ sessionKey: SESSION, source: 'chat', ...more }), route: ROUTE, goal: 'please' };
    const answer = (await this.store.write(this.verbs.start, [seed]))[0]!;
    if (answer.result === 'no_session') throw new Error('no session');
    return answer.id;
  }

  claimOf(agentId: string, more: Partial<Claim> = {}): Claim {
    return {
      agentId,
      instanceId: `${agentId}-1`,
      queues: ['default/shell'],
      max: 1,
      leaseMs: LEASE_MS,
      holding: null,
      ...more,
    };
  }

  async claimAll(agentId: string, more: Partial<Claim> = {}): Promise<Grant[]> {
    return (await this.store.write(this.line.claim, [this.claimOf(agentId, more)]))[0]!;
  }

  async claim(agentId = 'a1', more: Partial<Claim> = {}): Promise<Grant> {
    const [grant] = await this.claimAll(agentId, more);
    if (!grant) throw new Error('there is nothing to claim');
    return grant;
  }

  /** Claims and reports the start. */
  async run(agentId = 'a1', more: Partial<Claim> = {}): Promise<Grant> {
    const grant = await this.claim(agentId, more);
    await this.tell(grant, { type: 'started' }, { agentId });
    return grant;
  }

  /** One report, with the next sequence number unless one is given. */
  async tell(
    grant: Pick<Grant, 'runId' | 'leaseToken'>,
    news: RunNews,
    more: { agentId?: string; seq?: number } = {},
  ): Promise<ReportOutcome> {
    reportSeq += 1;
    const { runId, leaseToken } = grant;
    return (
      await this.store.write(this.verbs.report, [{ agentId: 'a1', runId, leaseToken, seq: reportSeq, news, ...more }])
    )[0]!;
  }

  async cancel(id: number): Promise<CancelAnswer> {
    return (await this.store.write(this.verbs.cancel, [{ id, by: 'test' }]))[0]!;
  }

  async retry(id: number): Promise<RetryAnswer> {
    return (await this.store.write(this.verbs.retry, [{ id, by: 'test' }]))[0]!;
  }

  /** One sweep of the tasks, long after the agents could speak. */
  sweep(agentsSpeakSince = 0): Promise<SweepCounts> {
    return this.store.transact('test.sweep', (tx) =>
      sweep(tx, { cancelGraceMs: GRACE_MS, agentsSpeakSince }, this.emit),
    );
  }

  /** The service; its own passing of time is told by `pass`. */
  sweeper(): Sweeper {
    const { store, clock, registry, dispatch, gateway, emit } = this;
    return new Sweeper({
      store,
      clock,
      registry,
      dispatch,
      gateway,
      emit,
      log: silentLog,
      leaseMs: LEASE_MS,
      cancelGraceMs: GRACE_MS,
      monotonic: () => this.#monotonic,
    });
  }

  /** Time passes normally: on the clock and for the process. */
  pass(ms: number): void {
    this.clock.advance(ms);
    this.#monotonic += ms;
  }

  agent(agentId = 'a1', more: Partial<AgentIdentity> = {}): TestAgent {
    return new TestAgent(this, { agentId, pools: ['default'], labels: {}, ...more });
  }

  async task(id: number): Promise<TaskTable> {
    return (await this.store.fetch(this.store.dialect.build.selectFrom('task').selectAll().where('id', '=', id)))[0]!;
  }

  async checkpoint(id: number): Promise<CheckpointTable | undefined> {
    const query = this.store.dialect.build.selectFrom('checkpoint').selectAll().where('task_id', '=', id);
    return (await this.store.fetch(query))[0];
  }

  runs(id: number): Promise<RunTable[]> {
    return this.store.fetch(
      this.store.dialect.build.selectFrom('run').selectAll().where('task_id', '=', id).orderBy('id'),
    );
  }

  history(id: number): Promise<EventTable[]> {
    return this.store.fetch(
      this.store.dialect.build
        .selectFrom('event')
        .selectAll()
        .where('task_id', '=', id)
        .orderBy('run_id')
        .orderBy('seq'),
    );
  }

  async flowOf(id: number): Promise<FlowTable> {
    const { flow_id } = await this.task(id);
    return (
      await this.store.fetch(this.store.dialect.build.selectFrom('flow').selectAll().where('id', '=', flow_id))
    )[0]!;
  }

  /** How often the task has ended, by its events. */
  endings(id: number): TaskEvent[] {
    return this.events.filter((event) => event.type === 'task.ended' && event.id === id);
  }

  #assignment({ task }: Grant): ReturnType<AssignmentOf> {
    if (this.gone.has(task.template)) return undefined;
    return {
      template: task.template,
      runtime: task.runtime,
      spec: null,
      args: {},
      secrets: [],
      timeoutMs: task.timeout_ms,
      limits: { outputBytes: 1 },
      idempotencyKey: null,
    };
  }
}

const NEVER = new AbortController().signal;
type Unsigned<R> = R extends unknown ? Omit<R, 'seq'> & { seq?: number } : never;

/** One agent process that talks to the gateway as the protocol says, without the network. */
export class TestAgent {
  readonly core: Core;
  readonly identity: AgentIdentity;
  instanceId: string;
  runtimes = ['shell'];
  #seq = 0;

  constructor(core: Core, identity: AgentIdentity, instanceId = `${identity.agentId}-1`) {
    this.core = core;
    this.identity = identity;
    this.instanceId = instanceId;
  }

  /** Another process with the same identity. */
  clone(instanceId: string): TestAgent {
    return new TestAgent(this.core, this.identity, instanceId);
  }

  get caller() {
    return { agentId: this.identity.agentId, instanceId: this.instanceId };
  }

  register(reports?: Report[]): Promise<RegisterAnswer> {
    return this.core.gateway.register(this.identity, {
      ...this.caller,
      bootId: 'boot',
      version: '1.0.0',
      protocol: 1,
      host: 'h',
      pools: this.identity.pools,
      labels: this.identity.labels,
      runtimes: this.runtimes,
      concurrency: 4,
      ...(reports ? { reports } : {}),
    });
  }

  pull(
    maxTasks = 1,
    { waitMs = 0, holding = [], gone = NEVER }: { waitMs?: number; holding?: string[]; gone?: AbortSignal } = {},
  ): Promise<PullAnswer> {
    return this.core.gateway.pull(this.identity, { ...this.caller, maxTasks, waitMs, holding }, gone);
  }

  beat(
    activeRuns: { runId: string; leaseToken: string }[],
    { waitMs, gone = NEVER }: { waitMs?: number; gone?: AbortSignal } = {},
  ) {
    return this.core.gateway.heartbeat(
      this.identity,
      { ...this.caller, uptimeMs: 1, load: 0.5, activeRuns, ...(waitMs ? { waitMs } : {}) },
      gone,
    );
  }

  /** A report with the next sequence number. */
  says(news: Unsigned<Report>): Report {
    this.#seq += 1;
    return { seq: this.#seq, ...news } as Report;
  }

  report(...reports: Unsigned<Report>[]): Promise<ReportAnswer> {
    return this.core.gateway.report(this.identity, {
      ...this.caller,
      reports: reports.map((report) => this.says(report)),
    });
  }

  reportAndPull(next: number, ...reports: Unsigned<Report>[]): Promise<ReportAnswer> {
    return this.core.gateway.report(this.identity, {
      ...this.caller,
      reports: reports.map((report) => this.says(report)),
      next,
    });
  }
}
