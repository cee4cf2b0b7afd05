import type { Dispatch } from '../agents/dispatch.ts';
import type { AgentRegistry } from '../agents/registry.ts';
import type { Clock } from '../clock.ts';
import type { Log } from '../log.ts';
import { audit } from '../sessions/audit.ts';
import type { Store } from '../store/store.ts';
import type { TaskLine } from '../tasks/claim.ts';
import { allBands } from '../tasks/line-queries.ts';
import { applyFix, type FixTools } from './audit-fixes.ts';
import {
  faultyFlows,
  faultyTasks,
  idBounds,
  needlessWaits,
  openEffects,
  overduePending,
  overdueQueued,
  silentSenders,
  staleLiveRuns,
  undecidedLost,
  undeliveredResults,
} from './audit-queries.ts';
import {
  type AgentFacts,
  type Finding,
  type Fix,
  failedDeliveries,
  lostTasks,
  orphanedFlows,
  staleQueued,
  staleRuns,
  stuckEffects,
  stuckMessages,
  stuckNeeds,
} from './findings.ts';
import { AHEAD_MS, taskFaults } from './task-faults.ts';

export interface TaskAuditOptions extends Omit<FixTools, 'actor' | 'dispatch' | 'ids'> {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly registry: Pick<AgentRegistry, 'list'>;
  readonly dispatch: Pick<Dispatch, 'serveDue' | 'claimOf'>;
  readonly line: Pick<TaskLine, 'holdsOf'>;
  /** Channels that this gateway serves, as `channel/account`. */
  readonly channels: ReadonlySet<string>;
  readonly leaseMs: number;
  /** One sweep of the sweeper, which knows whether agents could speak. */
  sweep(): Promise<void>;
  wakeDelivery(): void;
}

export interface AuditReport {
  readonly findings: readonly Finding[];
  /** A code has more findings than are listed. */
  readonly more: boolean;
}

export interface FixReport {
  readonly fixed: readonly (Finding & { readonly did: string })[];
  readonly left: readonly Finding[];
  readonly more: boolean;
}

/** How long something must have been due before it counts as stuck. */
export const STALE_MS = 600_000;

/** Findings per code. */
const LIMIT = 1_000;
/** Ids per step of a walk; the ids of all tables come from one sequence. */
const STEP_IDS = 10_000;
/** Findings that are fixed in one transaction. */
const FIX_BATCH = 100;
/** How long agents and senders that were woken may take, before a finding counts as left. */
const SETTLE = { tries: 20, everyMs: 100 };

/** Looks for what the engine should never leave behind, and puts right what can be put right. */
export class TaskAudit {
  readonly #options: TaskAuditOptions;

  constructor(options: TaskAuditOptions) {
    this.#options = options;
  }

  /** Changes nothing. Its time grows with the tables (about a second per million tasks), in steps that nobody waits behind. */
  async find(staleMs = STALE_MS): Promise<AuditReport> {
    const found = [await this.#live(staleMs), await this.#tasks(), await this.#flows(), await this.#messages(staleMs)];
    return { findings: found.flatMap(({ findings }) => findings), more: found.some(({ more }) => more) };
  }

  /** Finds, fixes what can be fixed, and looks again. Each fix is in the audit log, in the transaction that made it. */
  async fix(actor: string, staleMs = STALE_MS): Promise<FixReport> {
    const before = await this.find(staleMs);
    const did = new Map<Finding, string>();
    for (const [fix, findings] of byFix(before.findings)) {
      for (let n = 0; n < findings.length; n += FIX_BATCH)
        await this.#fixBatch(fix, findings.slice(n, n + FIX_BATCH), actor, did);
    }
    const after = did.size === 0 ? before : await this.#settled([...did.keys()], staleMs);
    const left = new Set(after.findings.map(nameOf));
    const fixed = [...did].filter(([finding]) => !left.has(nameOf(finding)));
    return {
      fixed: fixed.map(([finding, done]) => ({ ...finding, did: done })),
      left: after.findings,
      more: after.more,
    };
  }

  async #fixBatch(fix: Fix, findings: readonly Finding[], actor: string, did: Map<Finding, string>): Promise<void> {
    const { store, log, sweep, wakeDelivery } = this.#options;
    try {
      const done = await store.transact('audit.fix', async (tx) => {
        const answers = await applyFix(tx, fix, findings, { ...this.#options, ids: store.ids, actor });
        for (const [index, finding] of findings.entries()) {
          const answer = answers[index];
          if (answer == null) continue;
          const target = `${finding.kind}/${store.ids.encode(finding.id)}`;
          await audit(tx, { actor, action: 'tasks.audit_fixed', target, data: { code: finding.code, did: answer } });
        }
        return answers;
      });
      if (fix === 'sweep') await sweep();
      if (fix === 'wake_delivery') wakeDelivery();
      for (const [index, finding] of findings.entries()) if (done[index] != null) did.set(finding, done[index]);
    } catch (error) {
      // What one kind of fault does to its fix says nothing about the others; what is left is listed.
      log.error('audit.fix_failed', { fix, error });
    }
  }

  /** The audit after the fixes, once those that were woken had their time. */
  async #settled(fixed: readonly Finding[], staleMs: number): Promise<AuditReport> {
    const names = new Set(fixed.map(nameOf));
    for (let n = 1; ; n += 1) {
      const report = await this.find(staleMs);
      const open = report.findings.some((finding) => WAKING.has(finding.fix) && names.has(nameOf(finding)));
      if (!open || n >= SETTLE.tries) return report;
      await new Promise((resolve) => setTimeout(resolve, SETTLE.everyMs));
    }
  }

  async #live(staleMs: number): Promise<AuditReport> {
    const { store, clock, leaseMs } = this.#options;
    const now = clock.now();
    const before = now - staleMs;
    const queued = await store.all(overdueQueued, { rows: await this.#held(before), before, limit: LIMIT + 1 });
    const agents = queued.length === 0 ? [] : await this.#agents();
    return reportOf([
      staleQueued(queued, agents),
      staleRuns(await store.all(staleLiveRuns, { before: now - leaseMs, limit: LIMIT + 1 })),
      lostTasks(await store.all(undecidedLost, { limit: LIMIT + 1 })),
      stuckNeeds(await store.all(needlessWaits, { limit: LIMIT + 1 })),
      stuckEffects(await store.all(openEffects, { before, limit: LIMIT + 1 })),
    ]);
  }

  /** Streams in which something is overdue because a pause, a limit, a rate or a breaker holds it back: that is no fault. */
  async #held(before: number): Promise<number[][]> {
    const { store, clock, line } = this.#options;
    const overdue = (await store.all(allBands, {})).filter((band) => band.head_at <= before);
    const streams = [...new Map(overdue.map((band) => [band.id, band])).values()];
    const holds = await line.holdsOf({ all: (query, params) => store.all(query, params), now: clock.now() }, streams);
    return [...holds].flatMap(([{ id }, { length }]) => (length > 0 ? [[id]] : []));
  }

  async #messages(staleMs: number): Promise<AuditReport> {
    const { store, clock, channels } = this.#options;
    const now = clock.now();
    const silent = await store.all(silentSenders, { silent: now - staleMs, limit: LIMIT + 1 });
    const pending = await store.all(overduePending, { before: now - staleMs, now, limit: LIMIT + 1 });
    return reportOf([
      failedDeliveries(await store.all(undeliveredResults, { limit: LIMIT + 1 })),
      stuckMessages([...silent, ...pending], channels),
    ]);
  }

  async #tasks(): Promise<AuditReport> {
    const { store, clock } = this.#options;
    const [bounds] = await store.all(idBounds, {});
    return this.#walk(bounds?.task, bounds?.task_end, async (step) =>
      taskFaults(await store.all(faultyTasks, { ...step, ahead: clock.now() + AHEAD_MS }), clock.now()),
    );
  }

  async #flows(): Promise<AuditReport> {
    const { store } = this.#options;
    const [bounds] = await store.all(idBounds, {});
    return this.#walk(bounds?.flow, bounds?.flow_end, async (step) =>
      orphanedFlows(await store.all(faultyFlows, step)),
    );
  }

  /** From the first to the last id in bounded steps, each a turn of the event loop of its own. */
  async #walk(
    first: number | null | undefined,
    last: number | null | undefined,
    look: (step: { after: number; upto: number }) => Promise<Finding[]>,
  ): Promise<AuditReport> {
    const findings: Finding[] = [];
    if (first == null || last == null) return { findings, more: false };
    for (let after = first - 1; after < last && findings.length <= LIMIT; after += STEP_IDS) {
      findings.push(...(await look({ after, upto: after + STEP_IDS })));
      await new Promise((resolve) => setImmediate(resolve));
    }
    return reportOf([findings]);
  }

  async #agents(): Promise<AgentFacts[]> {
    const { registry, dispatch } = this.#options;
    return (await registry.list())
      .filter((agent) => agent.online)
      .map((agent) => ({
        agentId: agent.agentId,
        queues: new Set(dispatch.claimOf({ ...agent, instanceId: '' }, 1, null).queues),
        free: agent.concurrency - agent.activeRuns,
      }));
  }
}

const WAKING: ReadonlySet<Fix | null> = new Set<Fix>(['serve_agents', 'wake_delivery']);

const nameOf = ({ code, kind, id }: Finding) => `${code} ${kind} ${id}`;

function byFix(findings: readonly Finding[]): Map<Fix, Finding[]> {
  const groups = new Map<Fix, Finding[]>();
  for (const finding of findings) {
    if (finding.fix === null) continue;
    groups.set(finding.fix, [...(groups.get(finding.fix) ?? []), finding]);
  }
  return groups;
}

function reportOf(lists: readonly (readonly Finding[])[]): AuditReport {
  return {
    findings: lists.flatMap((list) => list.slice(0, LIMIT)),
    more: lists.some((list) => list.length > LIMIT),
  };
}
