import { randomBytes } from 'node:crypto';
import type { Tx, Verb } from '../store/tx.ts';
import { GateSettings, type GateSources, Gates } from './gates.ts';
import { allBands, bandHeads, streamsById } from './line-queries.ts';
import { type Band, Lineup, type Turns } from './lineup.ts';
import { type DueTask, dueTasks, markLeased } from './queries.ts';
import { extendLeases, grantsOf, insertRuns } from './run-queries.ts';
import { PRIORITIES } from './states.ts';
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

/** Added to the wall limit before the server itself times a run out: the agent's own time-out, grace and report come first. */
export const DEADLINE_MARGIN_MS = 60_000;

/** The line is read anew from the rows after so long, so that a lost hint costs latency and never a task. */
const RELOAD_MS = 30_000;
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
  readonly #lineup = new Lineup();
  readonly #sources: LineSources;
  readonly #turns = new Map<string, Turns>();
  #loadedAt: number | undefined;
  #settings: GateSettings | undefined;

  constructor(sources: LineSources = {}) {
    this.#sources = sources;
  }

  /** When a task comes due that is not yet, epoch milliseconds; infinity without one. */
  get nextAt(): number {
    return this.#lineup.nextAt;
  }

  /** Subscriber: takes new tasks into the line. Part of the transaction: a roll back leaves a hint that is found wrong. */
  async onTaskEvents(tx: Tx, events: readonly TaskEvent[]): Promise<Arrivals> {
    const queued = events.filter((event) => event.type === 'task.queued');
    const due = new Set<string>();
    const arrivals: Arrivals = { due, count: 0, nextAt: undefined };
    if (queued.length === 0) return arrivals;
    const ids = [...new Set(queued.map(({ streamId }) => streamId))];
    const streams = new Map((await tx.all(streamsById, { rows: ids.map((id) => [id]) })).map((row) => [row.id, row]));
    for (const { streamId, priority, runAt } of queued) {
      const stream = streams.get(streamId)!;
      this.#lineup.note(stream, priority, runAt);
      if (runAt > tx.now) arrivals.nextAt = Math.min(runAt, arrivals.nextAt ?? runAt);
      else {
        due.add(stream.queue);
        arrivals.count += 1;
      }
    }
    return arrivals;
  }

  /** The line is read anew from the rows at the next claim; for repairs. */
  forget(): void {
    this.#loadedAt = undefined;
  }

  /** Limits or pauses have been changed: they are read again. */
  settingsChanged(): void {
    this.#settings = undefined;
  }

  async #claim(tx: Tx, claims: readonly Claim[]): Promise<Grant[][]> {
    await this.#load(tx);
    if (this.#sources.pending) await this.onTaskEvents(tx, this.#sources.pending(tx));
    const takers: Taker[] = [];
    for (const item of claims) {
      const again = item.holding === null ? [] : await lostGrants(tx, item);
      takers.push({ claim: item, grants: again, room: item.max - again.length });
    }
    const round = new Round(tx, this.#lineup, new Gates(this.#settings!, this.#sources, tx.now));
    await round.fill(takers, (agentId) => this.#turnsOf(agentId));
    await round.finish();
    return takers.map((taker) => taker.grants);
  }

  async #load(tx: Tx): Promise<void> {
    this.#settings ??= await GateSettings.read(tx);
    if (this.#loadedAt !== undefined && Math.abs(tx.now - this.#loadedAt) < RELOAD_MS) return;
    this.#lineup.clear();
    for (const { priority, head_at, ...stream } of await tx.all(allBands, {}))
      this.#lineup.note(stream, priority, head_at);
    this.#loadedAt = tx.now;
    this.#settings = await GateSettings.read(tx);
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

/** One claim while it is being filled. */
interface Taker {
  readonly claim: Claim;
  readonly grants: Grant[];
  room: number;
}

interface Leased {
  readonly band: Band;
  readonly grant: Grant;
  readonly claim: Claim;
}

/** The tasks that are wanted of one band, and who wants them, in order. */
type Wishes = Map<Band, Taker[]>;

/** One transaction's claims: wishes are collected in memory, then fetched band by band, until nobody has room or nothing is left. */
class Round {
  readonly #tx: Tx;
  readonly #lineup: Lineup;
  readonly #gates: Gates;
  readonly #leased: Leased[] = [];
  /** Bands that were looked at in the rows. */
  readonly #touched = new Set<Band>();
  readonly #drained = new Set<Band>();

  constructor(tx: Tx, lineup: Lineup, gates: Gates) {
    this.#tx = tx;
    this.#lineup = lineup;
    this.#gates = gates;
  }

  async fill(takers: readonly Taker[], turnsOf: (agentId: string) => Turns): Promise<void> {
    for (;;) {
      const wishes: Wishes = new Map();
      for (const taker of takers) if (taker.room > 0) await this.#wish(taker, turnsOf(taker.claim.agentId), wishes);
      if (wishes.size === 0) return;
      for (const [band, wanting] of wishes) await this.#fetch(band, wanting);
    }
  }

  /** Runs, slots and rates; and what the rows say about the bands from now on. */
  async finish(): Promise<void> {
    if (this.#leased.length > 0) {
      await insertRunsOf(this.#tx, this.#leased);
      await this.#gates.store(
        this.#tx,
        this.#leased.map(({ band, grant }) => ({ stream: band.stream, runId: grant.runId })),
      );
    }
    if (this.#touched.size > 0) await this.#correct([...this.#touched]);
  }

  async #wish(taker: Taker, turns: Turns, wishes: Wishes): Promise<void> {
    let left = taker.room;
    while (left > 0) {
      const choice = await this.#choose(taker.claim.queues, turns);
      if (!choice) return;
      const count = Math.min(choice.count, left);
      left -= count;
      this.#lineup.take(choice.band);
      this.#gates.use(choice.band.stream, count);
      const wanting = wishes.get(choice.band) ?? [];
      for (let index = 0; index < count; index += 1) wanting.push(taker);
      wishes.set(choice.band, wanting);
    }
  }

  async #choose(queues: readonly string[], turns: Turns) {
    const mayStart = (band: Band) => (this.#drained.has(band) ? 0 : this.#gates.mayStart(band.stream));
    for (;;) {
      const credit = [...turns.credit];
      const choice = this.#lineup.next(queues, turns, this.#tx.now, mayStart);
      if (!this.#gates.isUnsure) return choice;
      // It was looked at with facts missing: as if it had not been.
      turns.credit.splice(0, credit.length, ...credit);
      await this.#gates.learn(this.#tx);
    }
  }

  /** Leases what is wanted of the band, or what there is. */
  async #fetch(band: Band, wanting: readonly Taker[]): Promise<void> {
    const tx = this.#tx;
    const { stream, priority } = band;
    const tasks = await tx.all(dueTasks, { stream: stream.id, priority, now: tx.now, limit: wanting.length });
    this.#touched.add(band);
    if (tasks.length < wanting.length) {
      this.#drained.add(band);
      this.#gates.use(stream, tasks.length - wanting.length);
    }
    if (tasks.length === 0) return;
    const first = await tx.ids(tasks.length);
    const marked = await tx.run(markLeased, { rows: tasks.map(({ id }, index) => [id, first + index]), now: tx.now });
    if (marked !== tasks.length)
      throw new Error(`${tasks.length} tasks were due in ${stream.queue}, but ${marked} could be leased`);
    const tokens = leaseTokens(tasks.length);
    for (const [index, task] of tasks.entries()) {
      const taker = wanting[index]!;
      const grant = {
        runId: first + index,
        taskId: task.id,
        attempt: task.attempt + 1,
        leaseToken: tokens[index]!,
        task,
      };
      taker.room -= 1;
      taker.grants.push(grant);
      this.#leased.push({ band, grant, claim: taker.claim });
    }
  }

  async #correct(bands: readonly Band[]): Promise<void> {
    const rows = bands.map(({ stream, priority }, place) => [place, stream.id, priority]);
    const heads = new Map((await this.#tx.all(bandHeads, { rows })).map((row) => [row.place, row.head_at]));
    const notes = bands.map((band) => band.notes);
    const { now } = this.#tx;
    this.#tx.afterCommit(() => {
      for (const [place, band] of bands.entries())
        this.#lineup.correct(band, heads.get(place) ?? null, now, notes[place]!);
    });
  }
}

async function insertRunsOf(tx: Tx, leased: readonly Leased[]): Promise<void> {
  const rows = leased.map(({ grant: { runId, attempt, leaseToken, task }, claim: by }) => [
    runId,
    task.id,
    task.generation,
    attempt,
    by.agentId,
    by.instanceId,
    leaseToken,
    tx.now + by.leaseMs,
    tx.now + task.timeout_ms + DEADLINE_MARGIN_MS,
  ]);
  await tx.run(insertRuns, { rows, now: tx.now });
}

async function lostGrants(tx: Tx, item: Claim): Promise<Grant[]> {
  const known = new Set(item.holding);
  const grants = await tx.all(grantsOf, { agent: item.agentId, instance: item.instanceId });
  const rows = grants.filter((row) => !known.has(row.run_id)).slice(0, item.max);
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

function leaseTokens(count: number): string[] {
  const bytes = randomBytes(12 * count);
  return Array.from({ length: count }, (_, index) => bytes.toString('base64url', index * 12, index * 12 + 12));
}
