import type { Clock } from '../clock.ts';
import type { Log } from '../log.ts';
import type { Store } from '../store/store.ts';
import type { Tx } from '../store/tx.ts';
import { type Claim, type Grant, type TaskLine, unknownGrants } from '../tasks/claim.ts';
import { isHeld } from '../tasks/states.ts';
import { labelSuffix } from '../tasks/streams.ts';
import type { TaskEvent } from '../tasks/task.ts';
import { type Parked, ParkingLot } from './parking.ts';
import type { AgentInstance } from './registry.ts';
import { mayTake } from './standing.ts';

type Claimant = Omit<AgentInstance, 'isLocal'>;

interface ParkedPull extends Parked<Grant[]> {
  readonly claim: Claim;
}

export interface DispatchOptions {
  store: Store;
  line: TaskLine;
  clock: Clock;
  log: Log;
  leaseMs: number;
  /** Label sets that templates ask for; an agent that has them also serves those queues. The same array until they change. */
  labelSets(): readonly Labels[];
}

const NO_QUEUES: readonly string[] = [];
const PATIENCE_MS = 20;
const BUSY_MS = 20;
const ENOUGH_READY = 64;

/**
 * Gives tasks to agents that pull. An agent that finds nothing waits here; when a task is queued, the waiting agents claim it inside
 * the very transaction that queued it, so that it is never read twice and costs no second commit.
 */
export class Dispatch {
  readonly #options: DispatchOptions;
  readonly #queues = new WeakMap<Claimant, { labelSets: readonly Labels[]; queues: readonly string[] }>();
  readonly #parked = new ParkingLot<Grant[], ParkedPull>();
  #timer: NodeJS.Timeout | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  #stopped = false;
  /** When an agent last asked for tasks, by the monotonic clock. */
  #tookAt = Number.NEGATIVE_INFINITY;
  /** About how many tasks are due and unclaimed; a hint, for nothing but patience. */
  #ready = 0;

  constructor(options: DispatchOptions) {
    this.#options = options;
  }

  get waiting(): number {
    return this.#parked.size;
  }

  /**
   * How long a new task may let the next report go first, milliseconds, so that it is stored while the agents work and not while they
   * wait. Only where that delays nothing: every agent is busy, reports come in quick succession, and enough tasks are ready for them.
   */
  patienceMs(): number {
    const busy = this.#parked.size === 0 && performance.now() - this.#tookAt < BUSY_MS;
    return busy && this.#ready >= ENOUGH_READY ? PATIENCE_MS : 0;
  }

  /** Of an agent that is to take nothing new the queues are none, from that very moment on and until it may again. */
  claimOf(instance: Claimant, max: number, holding: readonly number[] | null): Claim {
    const { leaseMs } = this.#options;
    const queues = () => (mayTake(instance.standing) ? this.#queuesOf(instance) : NO_QUEUES);
    return {
      agentId: instance.agentId,
      instanceId: instance.instanceId,
      get queues() {
        return queues();
      },
      max,
      leaseMs,
      holding,
    };
  }

  /** Claims now, without waiting; shares its transaction with whatever else is written in this turn. Nothing once stopped. */
  async take(claim: Claim): Promise<Grant[]> {
    this.#tookAt = performance.now();
    if (this.#stopped) return [];
    const grants = (await this.#options.store.write(this.#options.line.claim, [claim]))[0]!;
    this.#ready = grants.length < claim.max ? 0 : Math.max(0, this.#ready - grants.length);
    return grants;
  }

  /** Claims, or waits up to `waitMs` for something to claim; nothing when the caller hangs up. */
  async pull(claim: Claim, waitMs: number, gone: AbortSignal): Promise<Grant[]> {
    const isIdle = waitMs > 0 && (await this.#isIdle(claim));
    const grants = isIdle ? [] : await this.take(claim);
    if (grants.length > 0 || waitMs === 0 || gone.aborted || this.#stopped) return grants;
    this.#wakeAt(this.#options.line.nextAt);
    return this.#parked.wait((answer) => ({ key: claim.agentId, answer, claim: parkedClaim(claim) }), waitMs, [], gone);
  }

  /**
   * Whether a claim would find nothing, so that it need not be made: after each task an agent asks again at once, and mostly in vain.
   * Memory is asked last, in the turn in which the pull is parked: what is queued from then on finds it here.
   */
  async #isIdle(claim: Claim): Promise<boolean> {
    const { line, clock, store } = this.#options;
    const isIdle = () => !this.#stopped && line.isIdle(claim.queues, clock.now());
    return isIdle() && (await unknownGrants(store, claim)).length === 0 && isIdle();
  }

  /** Subscriber, last in order: serves waiting agents in the transaction that queued their task, or that made room for one. */
  async onTaskEvents(tx: Tx, events: readonly TaskEvent[]): Promise<void> {
    const { line } = this.#options;
    const { due, count, nextAt } = await line.onTaskEvents(tx, events);
    if (nextAt !== undefined) tx.afterCommit(() => this.#wakeAt(nextAt));
    if (count > 0) {
      tx.afterCommit(() => {
        this.#ready += count;
      });
    }
    // Nobody waits while something is due, unless a limit holds it back; and a run that ends may be what it waits for.
    const isFreed = this.#parked.size > 0 && events.some((event) => event.type === 'task.state' && isHeld(event.from));
    if (due.size === 0 && !isFreed) return;
    await this.#serve(
      tx,
      ({ claim: { queues } }) => queues.some((queue) => due.has(queue)) || (isFreed && line.hasReady(queues)),
    );
  }

  /** Serves everybody who waits, for tasks that time alone made due; part of every sweep, so a forgotten timer costs a second. */
  async serveDue(tx: Tx): Promise<void> {
    if (this.#parked.size > 0) await this.#serve(tx, ({ claim }) => claim.queues.length > 0);
  }

  /** Sends this agent's waiting pulls away empty. */
  dismiss(agentId: string): void {
    for (const pull of this.#parked.of(agentId)) pull.answer([]);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#parked.clear([]);
  }

  async #serve(tx: Tx, wanted: (pull: ParkedPull) => boolean): Promise<void> {
    const pulls = this.#parked.all().filter(wanted);
    if (pulls.length === 0) return;
    const grants = await this.#options.line.claim.run(
      tx,
      pulls.map((pull) => pull.claim),
    );
    tx.afterCommit(() => {
      // What was set aside for a time is looked at when it is over, not a second later.
      this.#wakeAt(this.#options.line.nextAt);
      for (const [index, pull] of pulls.entries()) {
        this.#ready = Math.max(0, this.#ready - grants[index]!.length);
        if (grants[index]!.length > 0) pull.answer(grants[index]!);
      }
    });
  }

  #wakeAt(at: number): void {
    if (at >= this.#timerAt || this.#stopped) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    const wait = Math.min(Math.max(at - this.#options.clock.now(), 0), 86_400_000);
    this.#timer = setTimeout(() => {
      this.#timerAt = Number.POSITIVE_INFINITY;
      this.#options.store
        .transact('dispatch.due', (tx) => this.serveDue(tx))
        .catch((error: unknown) => this.#options.log.error('dispatch.failed', { error }));
    }, wait);
  }

  /** Worked out once per instance and state of the templates. */
  #queuesOf(instance: Claimant): readonly string[] {
    const labelSets = this.#options.labelSets();
    const known = this.#queues.get(instance);
    if (known?.labelSets === labelSets) return known.queues;
    const queues = queuesOf(instance, labelSets);
    this.#queues.set(instance, { labelSets, queues });
    return queues;
  }
}

type Labels = Readonly<Record<string, string>>;

/** What it was not told of has been looked for; its queues are still those of the moment in which it is served. */
function parkedClaim(claim: Claim): Claim {
  const { agentId, instanceId, max, leaseMs } = claim;
  return {
    agentId,
    instanceId,
    get queues() {
      return claim.queues;
    },
    max,
    leaseMs,
    holding: null,
  };
}

function queuesOf(instance: Claimant, labelSets: readonly Labels[]): string[] {
  const has = (labels: Labels) => Object.entries(labels).every(([key, value]) => instance.labels[key] === value);
  const suffixes = new Set(['', ...labelSets.filter(has).map(labelSuffix)]);
  const places = [`@${instance.agentId}`, ...instance.pools];
  return places.flatMap((place) =>
    instance.runtimes.flatMap((runtime) => [...suffixes].map((suffix) => `${place}/${runtime}${suffix}`)),
  );
}
