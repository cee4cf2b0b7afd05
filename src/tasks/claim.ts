import type { Reader, Tx, Verb } from '../store/tx.ts';
import { Round, type Taker } from './claim-round.ts';
import { GateSettings } from './gate-settings.ts';
import { type Facts, type GateSources, Gates, type Hold } from './gates.ts';
import { allBands, streamsById } from './line-queries.ts';
import { type Band, Lineup, type Turns } from './lineup.ts';
import type { DueTask } from './queries.ts';
import { extendLeases, grantsOf } from './run-queries.ts';
import { PRIORITIES } from './states.ts';
import type { Stream } from './streams.ts';
import type { TaskEvent } from './task.ts';

export interface Claim {
  agentId: string;
  instanceId: string;
  /** See `queueName`. */
  queues: readonly string[];
  max: number;
  leaseMs: number;
  /** Grants of this instance that it does not know of (its answer was lost) are offered again, before anything new. */
  holding: readonly number[] | null;
}

export interface Grant {
  runId: number;
  taskId: number;
  /** Which execution this is, from 1. */
  attempt: number;
  leaseToken: string;
  task: DueTask;
}

/** The line is read anew from the rows after so long, so that a lost hint costs latency and never a task. */
const RELOAD_MS = 30_000;
/** A line that takes long to read (100,000 owners: half a second) is read less often: a fiftieth of the time at most. */
const RELOAD_SHARE = 50;
/** Streams that are remembered. */
const MAX_STREAMS = 10_000;
/** Agents whose turns are remembered. */
const MAX_TURNS = 10_000;

export interface LineSources extends GateSources {
  /** Events of this transaction that subscribers have not seen yet: what was queued before the claim may be claimed by it. */
  readonly pending?: (tx: Tx) => readonly TaskEvent[];
}

/** What has come into the line. */
export interface Arrivals {
  /** The queues in which something may start now. */
  readonly due: ReadonlySet<string>;
  /** How many tasks may start now. */
  count: number;
  /** When the first of the others may, epoch milliseconds. */
  nextAt: number | undefined;
}

/** Which task starts next: the tasks that wait, and the verb that gives them to agents. */
export class TaskLine {
  /** queued → leased for up to `max` tasks an agent; one new run (the fence) each. An attempt is spent at start, not here. */
  readonly claim: Verb<Claim, Grant[]> = { name: 'task.claim', rank: 90, run: (tx, claims) => this.#claim(tx, claims) };
  readonly #streams = new Map<number, Stream>();
  readonly #lineup = new Lineup();
  readonly #sources: LineSources;
  readonly #turns = new Map<string, Turns>();
  /** Scopes of limits of which every live run is counted; see `Gates`. */
  readonly #complete = new Set<string>();
  #loadedAt: number | undefined;
  #reloadMs = RELOAD_MS;
  #settings: GateSettings | undefined;

  constructor(sources: LineSources = {}) {
    this.#sources = sources;
  }

  /** When a task comes due that is not yet, or is to be looked at again, epoch milliseconds; infinity without one. */
  get nextAt(): number {
    return this.#lineup.nextAt;
  }

  /** Subscriber: takes new tasks into the line. Part of the transaction: a roll back leaves a hint that is found wrong. */
  async onTaskEvents(tx: Tx, events: readonly TaskEvent[]): Promise<Arrivals> {
    const queued = events.filter((event) => event.type === 'task.queued');
    const due = new Set<string>();
    const arrivals: Arrivals = { due, count: 0, nextAt: undefined };
    if (queued.length === 0) return arrivals;
    const streamOf = await this.#streamsOf(tx, new Set(queued.map(({ streamId }) => streamId)));
    for (const { streamId, priority, runAt } of queued) {
      const stream = streamOf(streamId);
      this.#lineup.note(stream, priority, runAt);
      if (runAt > tx.now) arrivals.nextAt = Math.min(runAt, arrivals.nextAt ?? runAt);
      else {
        due.add(stream.queue);
        arrivals.count += 1;
      }
    }
    return arrivals;
  }

  /** Streams are never rewritten, so those that were read once are known; those of this transaction only once it is on disk. */
  async #streamsOf(tx: Tx, ids: ReadonlySet<number>): Promise<(id: number) => Stream> {
    const missing = [...ids].filter((id) => !this.#streams.has(id));
    if (missing.length === 0) return (id) => this.#streams.get(id)!;
    const read = await tx.all(streamsById, { rows: missing.map((id) => [id]) });
    tx.afterCommit(() => {
      if (this.#streams.size > MAX_STREAMS) this.#streams.clear();
      for (const stream of read) this.#streams.set(stream.id, stream);
    });
    const fresh = new Map<number, Stream>(read.map((stream) => [stream.id, stream]));
    return (id) => fresh.get(id) ?? this.#streams.get(id)!;
  }

  /** The line is read anew from the rows at the next claim; for repairs. */
  forget(): void {
    this.#streams.clear();
    this.#loadedAt = undefined;
  }

  /** Limits or pauses have been changed, and that is committed: they are read again, and what was held back is looked at. */
  settingsChanged(): void {
    this.#settings = undefined;
    this.#complete.clear();
    this.#lineup.recall();
  }

  /** What was held back may be free now: the next claim looks at it. */
  recall(): void {
    this.#lineup.recall();
  }

  /** Whether a due task stands in one of these queues that nobody took: perhaps a limit held it back. One look at memory. */
  hasReady(queues: readonly string[]): boolean {
    return this.#lineup.hasReady(queues);
  }

  /** Whether nothing of these queues can be due, so that a claim would find nothing new. One look at memory; when unsure, false. */
  isIdle(queues: readonly string[], now: number): boolean {
    return this.#isLoaded(now) && this.#settings !== undefined && this.nextAt > now && !this.hasReady(queues);
  }

  /** Everything that holds back each of these streams now, by the rows; nothing is written. */
  async holdsOf(facts: Facts, streams: readonly Stream[]): Promise<Map<Stream, Hold[]>> {
    const gates = new Gates(await GateSettings.read(facts), this.#sources, facts.now);
    for (const stream of streams) gates.ask(stream);
    await gates.observe(facts);
    return new Map(streams.map((stream) => [stream, gates.mayStart(stream) > 0 ? [] : gates.holds(stream)]));
  }

  /** What is due in this queue, as far as memory knows; the rows decide. For explanations. */
  bandsOf(queue: string, now: number): Band[] {
    return this.#lineup.bandsOf(queue).filter(({ headAt }) => headAt <= now);
  }

  /** The lanes in which something is due and not taken, and since when, as far as memory knows; the rows decide. */
  waitingLanes(now: number): Map<string, number> {
    const since = new Map<string, number>();
    for (const { stream, headAt } of this.#lineup.due(now))
      since.set(stream.lane, Math.min(headAt, since.get(stream.lane) ?? headAt));
    return since;
  }

  /** What is due in this lane, those that have waited longest first. */
  bandsOfLane(lane: string, now: number): Band[] {
    const bands = [...this.#lineup.due(now)].filter(({ stream }) => stream.lane === lane);
    return bands.sort((a, b) => a.headAt - b.headAt || a.stream.id - b.stream.id);
  }

  /** What the rows say of a band's first task (null: it has none), read when `notes` tasks had come into it. */
  correct(band: Band, headAt: number | null, now: number, notes: number): void {
    this.#lineup.correct(band, headAt, now, notes);
  }

  async #claim(tx: Tx, claims: readonly Claim[]): Promise<Grant[][]> {
    const settings = await this.#load(tx);
    if (this.#sources.pending) await this.onTaskEvents(tx, this.#sources.pending(tx));
    const takers: Taker[] = [];
    for (const item of claims) {
      const again = await lostGrants(tx, item);
      takers.push({ claim: item, grants: again, room: item.max - again.length });
    }
    const round = new Round(tx, this.#lineup, new Gates(settings, this.#sources, tx.now, this.#complete));
    await round.fill(takers, (agentId) => this.#turnsOf(agentId));
    await round.finish();
    return takers.map((taker) => taker.grants);
  }

  /** The line and the settings, read anew where it is time. Of a transaction that is rolled back only the hints stay. */
  async #load(tx: Tx): Promise<GateSettings> {
    const isLoaded = this.#isLoaded(tx.now);
    if (isLoaded && this.#settings) return this.#settings;
    const settings = await GateSettings.read(tx);
    tx.afterCommit(() => {
      this.#settings = settings;
    });
    if (isLoaded) return settings;
    const startedAt = performance.now();
    this.#lineup.clear();
    this.#complete.clear();
    for (const { priority, head_at, ...stream } of await tx.all(allBands, {}))
      this.#lineup.note(stream, priority, head_at);
    this.#loadedAt = tx.now;
    this.#reloadMs = Math.max(RELOAD_MS, RELOAD_SHARE * (performance.now() - startedAt));
    return settings;
  }

  #isLoaded(now: number): boolean {
    return this.#loadedAt !== undefined && Math.abs(now - this.#loadedAt) < this.#reloadMs;
  }

  #turnsOf(agentId: string): Turns {
    let turns = this.#turns.get(agentId);
    if (!turns) {
      if (this.#turns.size >= MAX_TURNS) this.#turns.clear();
      turns = { credit: PRIORITIES.map(() => 0) };
      this.#turns.set(agentId, turns);
    }
    return turns;
  }
}

/** The grants of this instance that it does not know of. */
export async function unknownGrants(reader: Reader, { agentId, instanceId, holding, max }: Claim) {
  if (holding === null) return [];
  const known = new Set(holding);
  const grants = await reader.all(grantsOf, { agent: agentId, instance: instanceId });
  return grants.filter((row) => !known.has(row.run_id)).slice(0, max);
}

async function lostGrants(tx: Tx, item: Claim): Promise<Grant[]> {
  const rows = await unknownGrants(tx, item);
  // The agent takes them for new: it may be silent for a whole lease time.
  if (rows.length > 0)
    await tx.run(extendLeases, { rows: rows.map((row) => [row.run_id]), until: tx.now + item.leaseMs });
  return rows.map((row) => ({
    runId: row.run_id,
    taskId: row.id,
    attempt: row.run_attempt,
    leaseToken: row.lease_token,
    task: row,
  }));
}
