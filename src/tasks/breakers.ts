import type { Log } from '../log.ts';
import { audit } from '../sessions/audit.ts';
import type { Tx } from '../store/tx.ts';
import { type BreakerChange, type BreakerStep, changeBreakers, readBreakers, stepsFrom } from './breaker-rows.ts';
import {
  type Admission,
  admission,
  afterCall,
  type Breaker,
  type BreakerSettings,
  type CallEnd,
  callsWithin,
  closed,
  opened,
  withProbe,
  withSettings,
} from './breaker-state.ts';

/** The breaker of a template. */
export interface BreakerPolicy extends BreakerSettings {
  /** What becomes of a task whose breaker is open: it waits, or it fails at once. */
  readonly onOpen: 'wait' | 'fail';
}

/** A breaker as the templates describe it. */
export interface BreakerPlan {
  readonly settings: BreakerSettings;
  readonly templates: readonly { readonly id: string; readonly onOpen: BreakerPolicy['onOpen'] }[];
}

/** The breakers of the templates that are loaded now. */
export interface BreakerPolicies {
  /** Undefined where the template has none or is gone. One look-up. */
  of(template: string): BreakerPolicy | undefined;
  named(name: string): BreakerPlan | undefined;
  /** Sorted by name. */
  all(): readonly BreakerPlan[];
}

/** The end of one run of a template that has a breaker. */
export interface CallReport extends CallEnd {
  readonly settings: BreakerSettings;
}

export interface BreakersOptions {
  readonly policies: BreakerPolicies;
  readonly log: Log;
  /** Called after the commit of a change that lets tasks go: agents that wait should look again. Must not throw. */
  readonly onFreed: () => void;
}

/** Who asks for a change by hand, and why. */
export interface BreakerOrder {
  readonly name: string;
  /** The actor of the audit entry. */
  readonly by: string;
  readonly why: string | null;
}

/**
 * The circuit breakers as verbs: each is part of its caller's transaction and changes rows by compare-and-set; every change of state is
 * an audit entry and, after the commit, a line in the log.
 */
export class Breakers {
  readonly policies: BreakerPolicies;
  readonly #log: Log;
  readonly #onFreed: () => void;

  constructor({ policies, log, onFreed }: BreakersOptions) {
    this.policies = policies;
    this.#log = log;
    this.#onFreed = onFreed;
  }

  /** What the breakers of these names say now; changes nothing. One that has seen nothing is closed. */
  async admit(tx: Pick<Tx, 'all' | 'now'>, names: Iterable<string>): Promise<Map<string, Admission>> {
    const wanted = [...new Set(names)];
    const stored = await readBreakers(tx, wanted);
    return new Map(
      wanted.map((name) => {
        const found = stored.get(name);
        return [name, found ? admission(found.breaker, tx.now, found.probeIsOver) : { state: 'closed' }];
      }),
    );
  }

  /**
   * Makes runs the probes of their breakers, in the transaction that claims them. False: another run is the probe already, or the
   * breaker is open, or it is closed and needs none.
   */
  async takeProbes(tx: Tx, probes: readonly { readonly name: string; readonly runId: number }[]): Promise<boolean[]> {
    const first = new Map(probes.toReversed().map((probe) => [probe.name, probe]));
    const done = await this.#change(
      tx,
      [...first.values()].map(({ name, runId }): [string, BreakerChange] => [
        name,
        (stored) => {
          if (!stored) return [];
          const { breaker, probeIsOver } = stored;
          const now = admission(breaker, tx.now, probeIsOver);
          const isFree = now.state === 'half_open' && now.probeFree;
          return isFree ? [{ before: breaker, after: withProbe(breaker, runId, tx.now) }] : [];
        },
      ]),
    );
    return probes.map((probe) => first.get(probe.name) === probe && done.get(probe.name)!.length > 0);
  }

  /** Counts the ends of runs, in order, and answers the names of the breakers that have opened because of them. */
  async recordOutcomes(tx: Tx, reports: readonly CallReport[]): Promise<string[]> {
    const byName = new Map<string, CallReport[]>();
    for (const report of reports) {
      const { name } = report.settings;
      byName.set(name, [...(byName.get(name) ?? []), report]);
    }
    const done = await this.#change(
      tx,
      [...byName].map(([name, ends]): [string, BreakerChange] => [
        name,
        (stored) => {
          const { settings } = ends.at(-1)!;
          const moves = ends.map((end) => (breaker: Breaker) => afterCall(breaker, end, tx.now));
          return stepsFrom(stored, settings, tx.now, (breaker) => withSettings(breaker, settings), ...moves);
        },
      ]),
    );
    const hasOpened = (steps: readonly BreakerStep[]) =>
      steps.some(({ before, after }) => before.state !== 'open' && after.state === 'open');
    return [...done].filter(([, steps]) => hasOpened(steps)).map(([name]) => name);
  }

  /** A person says that the service is well: closed, with nothing counted. False: there is no such breaker. */
  reset(tx: Tx, order: BreakerOrder): Promise<boolean> {
    return this.#byHand(tx, order, 'breaker.reset', {}, (breaker) => closed(breaker, tx.now));
  }

  /** A person keeps tasks away for `forMs` milliseconds; a probe follows. False: there is no such breaker. */
  open(tx: Tx, order: BreakerOrder, forMs: number): Promise<boolean> {
    const data = { untilAt: tx.now + forMs };
    return this.#byHand(tx, order, 'breaker.opened', data, (breaker) => opened(breaker, 'operator', forMs, tx.now));
  }

  async #byHand(
    tx: Tx,
    { name, by, why }: BreakerOrder,
    action: string,
    data: Record<string, unknown>,
    move: (breaker: Breaker) => Breaker,
  ): Promise<boolean> {
    const settings = this.policies.named(name)?.settings;
    if (!settings && !(await readBreakers(tx, [name])).has(name)) return false;
    const steps = await changeBreakers(
      tx,
      new Map([[name, (stored) => stepsFrom(stored, settings ?? stored!.breaker, tx.now, move)]]),
    );
    await audit(tx, { actor: by, action, target: name, data: { ...data, ...(why === null ? {} : { why }) } });
    tx.afterCommit(() => this.#log.warn(action, { breaker: name, by, ...data }));
    this.#free(tx, [...steps.values()].flat());
    return true;
  }

  async #change(tx: Tx, changes: readonly [string, BreakerChange][]): Promise<Map<string, readonly BreakerStep[]>> {
    if (changes.length === 0) return new Map();
    const done = await changeBreakers(tx, new Map(changes));
    const steps = [...done.values()].flat();
    for (const step of steps) if (step.before.state !== step.after.state) await this.#tell(tx, step);
    this.#free(tx, steps);
    return done;
  }

  async #tell(tx: Tx, { before, after }: BreakerStep): Promise<void> {
    const action = after.state === 'open' ? 'breaker.opened' : `breaker.${after.state}`;
    const data = factsOf(before, after, tx.now);
    await audit(tx, { actor: 'gateway', action, target: after.name, data });
    const level = after.state === 'open' ? 'warn' : 'info';
    tx.afterCommit(() => this.#log[level](action, { breaker: after.name, ...data }));
  }

  #free(tx: Tx, steps: readonly BreakerStep[]): void {
    const isFreed = steps.some(
      ({ before, after }) =>
        (before.state !== 'closed' && after.state === 'closed') ||
        (before.probeRun !== null && after.probeRun === null && after.state === 'half_open'),
    );
    if (isFreed) tx.afterCommit(this.#onFreed);
  }
}

function factsOf(before: Breaker, after: Breaker, now: number): Record<string, unknown> {
  if (after.state === 'half_open') return { from: before.state, runId: after.probeRun };
  if (after.state === 'closed') return { from: before.state };
  // The call that opened it is no longer in the counts: it is one more failure.
  const { calls, failures } = callsWithin(before, now);
  const counts = after.reason === 'failure_rate' ? { calls: calls + 1, failures: failures + 1 } : {};
  return { from: before.state, reason: after.reason, untilAt: after.untilAt, ...counts };
}
