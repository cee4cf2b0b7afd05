import type { Clock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import type { IdCodec } from '../ids.ts';
import type { Log } from '../log.ts';
import type { Releases } from '../releases/releases.ts';
import type { Store } from '../store/store.ts';
import type { Tx } from '../store/tx.ts';
import { checkpointsOf } from '../tasks/checkpoints.ts';
import { type Grant, unknownGrants } from '../tasks/claim.ts';
import { pulseRuns, type RunPulse } from '../tasks/heartbeat.ts';
import { ProgressPace } from '../tasks/progress.ts';
import { type ReportOutcome, type RunNews, type RunReport, reportRunsVerb } from '../tasks/report.ts';
import type { Emit, TaskEvent } from '../tasks/task.ts';
import type { Dispatch } from './dispatch.ts';
import { LATE_MS, noteLateEnds } from './late-ends.ts';
import { type Parked, ParkingLot } from './parking.ts';
import type {
  Assignment,
  HeartbeatAnswer,
  HeartbeatRequest,
  PullAnswer,
  PullRequest,
  RegisterAnswer,
  RegisterRequest,
  Report,
  ReportAnswer,
  ReportRequest,
  ReportResult,
} from './protocol.ts';
import type { AgentInstance, AgentRegistry } from './registry.ts';
import { machineLoadOf } from './standing.ts';
import type { AgentIdentity } from './tokens.ts';

/** Turns a grant into what the agent is asked to run; undefined where its template is gone. May throw where it does not fit any more. */
export type AssignmentOf = (
  grant: Grant,
) =>
  | Omit<Assignment, 'runId' | 'taskId' | 'attempt' | 'leaseToken' | 'leaseMs' | 'checkpoint' | 'checkpointVersion'>
  | undefined;

export interface AgentGatewayOptions {
  store: Store;
  ids: IdCodec;
  clock: Clock;
  log: Log;
  emit: Emit<TaskEvent>;
  registry: AgentRegistry;
  dispatch: Dispatch;
  assignmentOf: AssignmentOf;
  leaseMs: number;
  heartbeatMs: number;
  /** Whether a sign of life of this run is to be asked for now; absent: never. */
  isQuiet?(runId: number): boolean;
  version: string;
  /** Absent: nothing is ever published, and what agents note is not kept. */
  releases?: Releases;
}

/** As many as an agent can hold. */
const MAX_GRANTS = 1_024;

/** Agent protocol v1, the gateway's side; transport and authentication are the HTTP room's. */
export class AgentGateway {
  readonly #options: AgentGatewayOptions;
  readonly #report: ReturnType<typeof reportRunsVerb>;
  readonly #pace: ProgressPace;
  readonly #hearts = new ParkingLot<null, Parked<null>>();

  constructor(options: AgentGatewayOptions) {
    this.#options = options;
    this.#pace = new ProgressPace(options.emit);
    this.#report = reportRunsVerb(options.emit, this.#pace);
  }

  async register(identity: AgentIdentity, request: RegisterRequest): Promise<RegisterAnswer> {
    const { store, clock, registry, leaseMs, heartbeatMs } = this.#options;
    const reports = request.reports ?? [];
    const valid = reports.map((report) => this.#runReport(identity.agentId, report));
    const outcomes = await registry.register(
      identity,
      request,
      valid.filter((report) => report !== null),
    );
    await noteLateEnds(store, { reports, valid, outcomes, before: clock.now() - LATE_MS.registration });
    for (const heart of this.#hearts.of(identity.agentId)) heart.answer(null);
    return {
      ok: true,
      leaseMs,
      heartbeatMs,
      ...this.#versions(request.version),
      results: this.#results(reports, valid, outcomes),
    };
  }

  async heartbeat(identity: AgentIdentity, request: HeartbeatRequest, gone: AbortSignal): Promise<HeartbeatAnswer> {
    const instance = await this.#instance(identity, request);
    this.#options.registry.heard(instance, machineLoadOf(request));
    await this.#options.releases?.notes.hear(instance.agentId, request);
    if (request.stopping) return this.#farewell(instance, request);
    const runs = request.waitMs
      ? await this.#watch(identity, instance, request, gone)
      : await this.#pulse(instance, request);
    return { ok: true, ...this.#versions(request.version), runs };
  }

  async pull(identity: AgentIdentity, request: PullRequest, gone: AbortSignal): Promise<PullAnswer> {
    const instance = await this.#instance(identity, request);
    const { registry, dispatch, ids } = this.#options;
    registry.contact(instance, null);
    const holding = request.holding.map((id) => ids.decode(id)).filter((id) => id !== undefined);
    const grants = await dispatch.pull(dispatch.claimOf(instance, request.maxTasks, holding), request.waitMs, gone);
    return { tasks: await this.#assignments(await this.#receiver(identity, request, grants), grants) };
  }

  async report(identity: AgentIdentity, request: ReportRequest): Promise<ReportAnswer> {
    const instance = await this.#instance(identity, request);
    const { registry, dispatch, store } = this.#options;
    registry.contact(instance, null);
    const valid = request.reports.map((report) => this.#runReport(identity.agentId, report));
    // Both in the same turn: one transaction applies the reports and claims what follows.
    const [outcomes, grants] = await Promise.all([
      store.write(
        this.#report,
        valid.filter((report) => report !== null),
      ),
      request.next === undefined ? [] : dispatch.take(dispatch.claimOf(instance, request.next, null)),
    ]);
    const noting = noteLateEnds(store, {
      ...{ reports: request.reports, valid, outcomes },
      before: this.#options.clock.now() - LATE_MS.report,
    });
    if (noting) await noting;
    const results = this.#results(request.reports, valid, outcomes);
    if (request.next === undefined) return { results };
    return { results, tasks: await this.#assignments(await this.#receiver(identity, request, grants), grants) };
  }

  /** Subscriber: a cancel is told at once to the agent that waits with its heartbeat; the last progress of a run that ends is written. */
  async onTaskEvents(tx: Tx, events: readonly TaskEvent[]): Promise<void> {
    await this.#pace.onTaskEvents(tx, events);
    for (const event of events) {
      if (event.type !== 'task.cancel_requested') continue;
      tx.afterCommit(() => {
        for (const heart of this.#hearts.of(event.agentId)) heart.answer(null);
      });
    }
  }

  /** Writes the progress that has waited long enough; part of every sweep. */
  async flushProgress(tx: Tx): Promise<void> {
    await this.#pace.flush(tx);
  }

  /** The calls of this agent that wait are answered now: it may not be allowed to wait any more. */
  dismiss(agentId: string): void {
    for (const heart of this.#hearts.of(agentId)) heart.answer(null);
    this.#options.dispatch.dismiss(agentId);
  }

  stop(): void {
    this.#hearts.clear(null);
  }

  #instance(identity: AgentIdentity, request: { agentId: string; instanceId: string }): Promise<AgentInstance> {
    return this.#options.registry.instance(identity, request.agentId, request.instanceId);
  }

  /** The instance that is given these grants. Replaced meanwhile, it gets nothing, and they go back at once. */
  async #receiver(
    identity: AgentIdentity,
    request: { agentId: string; instanceId: string },
    grants: readonly Grant[],
  ): Promise<AgentInstance> {
    try {
      return await this.#instance(identity, request);
    } catch (error) {
      await this.#returnGrants(identity.agentId, grants, () => ({ type: 'released' }));
      throw error;
    }
  }

  /** The last word of an instance that ends in order. What it was granted and never got (its pull was cut off) goes back at once. */
  async #farewell(instance: AgentInstance, request: HeartbeatRequest): Promise<HeartbeatAnswer> {
    const { registry, store, ids, leaseMs } = this.#options;
    registry.stopped(instance);
    const runs = await this.#pulse(instance, request);
    const holding = request.activeRuns.map(({ runId }) => ids.decode(runId) ?? 0);
    const left = await unknownGrants(store, { ...instance, queues: [], max: MAX_GRANTS, leaseMs, holding });
    await this.#returnGrants(
      instance.agentId,
      left.map((row) => ({ runId: row.run_id, leaseToken: row.lease_token })),
      () => ({ type: 'released' }),
    );
    return { ok: true, ...this.#versions(request.version), runs };
  }

  /** Answers when there is something to do, at the latest after `waitMs`. */
  async #watch(
    identity: AgentIdentity,
    instance: AgentInstance,
    request: HeartbeatRequest,
    gone: AbortSignal,
  ): Promise<HeartbeatAnswer['runs']> {
    const over = new AbortController();
    // Parked before the runs are looked at, so that a cancel of the same moment is not missed.
    const told = this.#hearts.wait(
      (answer) => ({ key: instance.agentId, answer }),
      request.waitMs!,
      null,
      AbortSignal.any([gone, over.signal]),
    );
    try {
      const runs = await this.#pulse(instance, request);
      if (runs.some((run) => run.action !== 'continue' || run.probe)) return runs;
      await told;
      await this.#instance(identity, request);
      return await this.#pulse(instance, request);
    } finally {
      over.abort();
    }
  }

  async #pulse(instance: AgentInstance, request: HeartbeatRequest): Promise<HeartbeatAnswer['runs']> {
    const { store, ids, leaseMs } = this.#options;
    const pulses = request.activeRuns.map(
      ({ runId, leaseToken }): RunPulse => ({
        agentId: instance.agentId,
        runId: ids.decode(runId) ?? 0,
        leaseToken,
        leaseMs,
      }),
    );
    const answers = await store.write(pulseRuns, pulses);
    return request.activeRuns.map(({ runId }, index) => {
      const action = answers[index]!;
      const isAsked = action === 'continue' && this.#options.isQuiet?.(pulses[index]!.runId) === true;
      return isAsked ? { runId, action, probe: true } : { runId, action };
    });
  }

  async #assignments(instance: AgentInstance, grants: readonly Grant[]): Promise<Assignment[]> {
    const { ids, leaseMs } = this.#options;
    const saved = await this.#checkpoints(grants);
    const assignments: Assignment[] = [];
    const unfit = new Map<Grant, string>();
    for (const grant of grants) {
      const what = this.#content(grant);
      if (typeof what === 'string') unfit.set(grant, what);
      else {
        const { runId, taskId, attempt, leaseToken } = grant;
        assignments.push({
          runId: ids.encode(runId),
          taskId: ids.encode(taskId),
          attempt,
          leaseToken,
          leaseMs,
          ...what,
          ...saved.get(taskId),
        });
      }
    }
    await this.#returnGrants(instance.agentId, [...unfit.keys()], (grant) => ({
      type: 'failed',
      errorClass: 'permanent',
      error: unfit.get(grant)!,
    }));
    return assignments;
  }

  /** Where to go on from, by task: asked for only where a task says that it has one. */
  async #checkpoints(grants: readonly Grant[]) {
    const ids = grants.filter(({ task }) => task.checkpoint_version !== null).map(({ taskId }) => taskId);
    const found = await checkpointsOf(this.#options.store, ids);
    return new Map([...found].map(([id, { version, data }]) => [id, { checkpoint: data, checkpointVersion: version }]));
  }

  /** What to run, or why the template cannot say that any more: told in the task, not left to expire. */
  #content(grant: Grant): NonNullable<ReturnType<AssignmentOf>> | string {
    const { template } = grant.task;
    try {
      return this.#options.assignmentOf(grant) ?? `the template ${template} is gone or no longer valid`;
    } catch (error) {
      return `the template ${template} no longer accepts the arguments of this task: ${messageOf(error)}`;
    }
  }

  /** Ends grants that do not reach their agent. */
  async #returnGrants<T extends Pick<Grant, 'runId' | 'leaseToken'>>(
    agentId: string,
    grants: readonly T[],
    newsFor: (grant: T) => RunNews,
  ): Promise<void> {
    if (grants.length === 0) return;
    const reports = grants.map(
      (grant): RunReport => ({
        agentId,
        runId: grant.runId,
        leaseToken: grant.leaseToken,
        seq: -3,
        news: newsFor(grant),
      }),
    );
    await this.#options.store.write(this.#report, reports);
  }

  #runReport(agentId: string, report: Report): RunReport | null {
    const runId = this.#options.ids.decode(report.runId);
    return runId === undefined
      ? null
      : { agentId, runId, leaseToken: report.leaseToken, seq: report.seq, news: newsOf(report) };
  }

  #results(
    reports: readonly Report[],
    valid: readonly (RunReport | null)[],
    outcomes: readonly ReportOutcome[],
  ): ReportResult[] {
    let next = 0;
    return reports.map(({ runId, seq }, index) =>
      valid[index] === null
        ? { runId, seq, result: 'rejected', reason: 'this is no run id' }
        : { runId, seq, ...outcomes[next++]! },
    );
  }

  #versions(agentVersion: string | undefined) {
    const { clock, version, releases } = this.#options;
    const news = releases?.news(agentVersion, version) ?? { latestVersion: version, hasUpdate: false };
    return { serverTime: clock.now(), ...news };
  }
}

/** The part of a report that is about the run; texts are made well-formed here, once. */
function newsOf(report: Report): RunNews {
  if (report.type === 'succeeded') {
    // The common one, field by field: what is made up of unknown fields is slow for the engine.
    const { summary, outputs, exitCode } = report;
    return {
      type: 'succeeded',
      summary: wellFormed(summary) as string,
      ...(outputs && { outputs: wellFormed(outputs) as Record<string, string> }),
      ...(exitCode !== undefined && { exitCode }),
    };
  }
  const news: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(report)) if (!HEAD_FIELDS.has(key)) news[key] = wellFormed(value);
  return news as RunNews;
}

const HEAD_FIELDS = new Set(['runId', 'leaseToken', 'seq', 'at']);

function wellFormed(value: unknown): unknown {
  if (typeof value === 'string')
    return value.isWellFormed() && !value.includes('\0') ? value : value.toWellFormed().replaceAll('\0', '');
  if (Array.isArray(value)) return value.map(wellFormed);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [wellFormed(key), wellFormed(inner)]));
}
