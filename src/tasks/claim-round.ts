import { randomToken } from '../ids.ts';
import type { Tx } from '../store/tx.ts';
import type { Claim, Grant } from './claim.ts';
import type { Gates } from './gates.ts';
import { bandHeads } from './line-queries.ts';
import type { Band, Lineup, Turns } from './lineup.ts';
import { dueTasks, markLeased } from './queries.ts';
import type { Start } from './ring.ts';
import { insertRuns } from './run-queries.ts';

/** Added to the wall limit before the server itself times a run out: the agent's own time-out, grace and report come first. */
export const DEADLINE_MARGIN_MS = 60_000;

/** One claim while it is being filled. */
export interface Taker {
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
export class Round {
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
    const mayStart = (band: Band) => this.#mayStart(band);
    for (;;) {
      const credit = [...turns.credit];
      const choice = this.#lineup.next(queues, turns, this.#tx.now, mayStart);
      if (!this.#gates.isUnsure) return choice;
      // It was looked at with facts missing: as if it had not been.
      turns.credit.splice(0, credit.length, ...credit);
      await this.#gates.learn(this.#tx);
    }
  }

  #mayStart(band: Band): Start {
    if (this.#drained.has(band)) return 0;
    const { stream } = band;
    const count = this.#gates.mayStart(stream);
    if (count > 0) return count;
    if (this.#gates.isUnsure) return 'unsure';
    return this.#gates.aside(stream) ?? (this.#gates.isCrowded(stream) ? 'crowded' : 0);
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

    for (const [index, task] of tasks.entries()) {
      const taker = wanting[index]!;
      const grant = {
        runId: first + index,
        taskId: task.id,
        attempt: task.attempt + 1,
        leaseToken: randomToken(12),
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
