import type { Tx } from '../store/tx.ts';
import type { Admission } from './breaker-state.ts';
import type { Breakers } from './breakers.ts';
import { allGates, countSlots, freeSlots, type GateRow, insertSlots, rateBuckets, storeRates } from './line-queries.ts';
import { placeOf, type Stream } from './streams.ts';

/** What a template asks for itself. */
export interface TemplateLimits {
  /** Running at once. */
  readonly concurrency: number | null;
  /** Starts: at most `max` in `perMs`, as a token bucket. */
  readonly rate: { readonly perMs: number; readonly max: number } | null;
}

/** What can be limited or paused by a person, and its name there. */
export const GATE_KINDS = ['template', 'owner', 'pool', 'lane', 'gateway'] as const;
export type GateKind = (typeof GATE_KINDS)[number];

/** Stands for every owner that has no limit of its own, and for the gateway itself. */
export const ANY = '*';

/** Lanes that are limited unless a person says otherwise; all others take what the agents can. */
export const LANE_DEFAULTS: Readonly<Record<string, number>> = { cron: 1, subagent: 8, nested: 4 };

/** Why nothing of a stream may start. */
export type Hold =
  | { readonly type: 'paused'; readonly kind: GateKind; readonly name: string; readonly reason: string | null }
  | { readonly type: 'full'; readonly kind: GateKind | 'serial'; readonly name: string; readonly limit: number }
  | { readonly type: 'rate'; readonly template: string; readonly untilAt: number }
  | { readonly type: 'breaker'; readonly name: string; readonly admission: Exclude<Admission, { state: 'closed' }> };

interface Scope {
  readonly kind: GateKind | 'serial';
  readonly name: string;
  readonly limit: number;
  /** The key of its slots. */
  readonly text: string;
}

interface Guard {
  readonly paused: Hold | undefined;
  readonly scopes: readonly Scope[];
  readonly rate: { readonly template: string; readonly perMs: number; readonly max: number } | undefined;
  readonly breaker: string | undefined;
}

/** What decides besides the rows of limits. */
export interface GateSources {
  /** What templates ask for; undefined where the template is gone or asks for nothing. */
  readonly limitsOf?: (template: string) => TemplateLimits | undefined;
  readonly breakers?: Pick<Breakers, 'admit' | 'takeProbes' | 'policies'>;
}

/** Limits and pauses that people have set, as read from the rows. */
export class GateSettings {
  readonly #rows: ReadonlyMap<string, GateRow>;

  private constructor(rows: readonly GateRow[]) {
    this.#rows = new Map(rows.map((row) => [`${row.kind}:${row.name}`, row]));
  }

  static async read(tx: Pick<Tx, 'all'>): Promise<GateSettings> {
    return new GateSettings(await tx.all(allGates, {}));
  }

  get isEmpty(): boolean {
    return this.#rows.size === 0;
  }

  concurrency(kind: GateKind, name: string): number | null {
    return this.#rows.get(`${kind}:${name}`)?.concurrency ?? null;
  }

  /** The pause of this, or undefined. */
  pause(kind: GateKind, name: string): Hold | undefined {
    const row = this.#rows.get(`${kind}:${name}`);
    return row && row.paused_at !== null ? { type: 'paused', kind, name, reason: row.reason } : undefined;
  }
}

/**
 * How many tasks of a stream may start in this transaction. Facts are read when they are first needed: `mayStart` answers 0 for what
 * it does not know yet and remembers to ask; `learn` reads all of that at once, then one looks again.
 */
export class Gates {
  readonly #settings: GateSettings;
  readonly #sources: GateSources;
  readonly #now: number;
  readonly #guards = new Map<Stream, Guard | null>();
  readonly #used = new Map<string, number>();
  readonly #tokens = new Map<string, number>();
  readonly #spent = new Set<string>();
  readonly #unknownScopes = new Set<string>();
  readonly #unknownRates = new Map<string, { perMs: number; max: number }>();
  readonly #admissions = new Map<string, Admission>();
  /** By breaker: probes that are about to start. */
  readonly #probes = new Map<string, number>();
  readonly #unknownBreakers = new Set<string>();

  constructor(settings: GateSettings, sources: GateSources, now: number) {
    this.#settings = settings;
    this.#sources = sources;
    this.#now = now;
  }

  /** Whether something was asked that only the rows know. */
  get isUnsure(): boolean {
    return this.#unknownScopes.size + this.#unknownRates.size + this.#unknownBreakers.size > 0;
  }

  /** Tasks that may start now; infinity where nothing limits them. */
  mayStart(stream: Stream): number {
    const guard = this.#guard(stream);
    if (guard === null) return Number.POSITIVE_INFINITY;
    if (guard.paused) return 0;
    let most = Number.POSITIVE_INFINITY;
    for (const { text, limit } of guard.scopes) {
      const used = this.#used.get(text);
      if (used === undefined) this.#unknownScopes.add(text);
      most = Math.min(most, used === undefined ? 0 : limit - used);
    }
    if (guard.rate) {
      const tokens = this.#tokens.get(guard.rate.template);
      if (tokens === undefined) this.#unknownRates.set(guard.rate.template, guard.rate);
      most = Math.min(most, Math.floor(tokens ?? 0));
    }
    return Math.max(0, Math.min(most, this.#admitted(guard.breaker)));
  }

  /** Reads what was asked for. */
  async learn(tx: Tx): Promise<void> {
    if (this.#unknownScopes.size > 0) {
      const rows = [...this.#unknownScopes].map((scope) => [scope]);
      await tx.run(freeSlots, { rows });
      for (const { scope, used } of await tx.all(countSlots, { rows })) this.#used.set(scope, used);
      this.#unknownScopes.clear();
    }
    if (this.#unknownRates.size > 0) {
      const rows = [...this.#unknownRates.keys()].map((template) => [template]);
      const found = new Map((await tx.all(rateBuckets, { rows })).map((row) => [row.template, row]));
      for (const [template, { perMs, max }] of this.#unknownRates) {
        const row = found.get(template);
        const filled = row ? row.tokens + (Math.max(0, this.#now - row.at) * max) / perMs : max;
        this.#tokens.set(template, Math.min(max, filled));
      }
      this.#unknownRates.clear();
    }
    if (this.#unknownBreakers.size > 0) {
      const admissions = await this.#sources.breakers!.admit(tx, this.#unknownBreakers);
      for (const [name, admission] of admissions) this.#admissions.set(name, admission);
      this.#unknownBreakers.clear();
    }
  }

  /** So many tasks of the stream are about to start (negative: they did not after all). */
  use(stream: Stream, count: number): void {
    const guard = this.#guard(stream);
    if (guard === null) return;
    for (const { text } of guard.scopes) this.#used.set(text, (this.#used.get(text) ?? 0) + count);
    if (guard.rate) {
      this.#tokens.set(guard.rate.template, (this.#tokens.get(guard.rate.template) ?? 0) - count);
      this.#spent.add(guard.rate.template);
    }
    if (guard.breaker !== undefined) this.#probes.set(guard.breaker, (this.#probes.get(guard.breaker) ?? 0) + count);
  }

  /** Stores what the started runs take up. */
  async store(tx: Tx, started: readonly { readonly stream: Stream; readonly runId: number }[]): Promise<void> {
    const slots = started.flatMap(({ stream, runId }) =>
      (this.#guard(stream)?.scopes ?? []).map(({ text }) => [text, runId]),
    );
    if (slots.length > 0) await tx.run(insertSlots, { rows: slots });
    await this.#storeProbes(tx, started);
    if (this.#spent.size === 0) return;
    const rows = [...this.#spent].map((template) => [template, this.#tokens.get(template)!]);
    await tx.run(storeRates, { rows, now: tx.now });
  }

  async #storeProbes(tx: Tx, started: readonly { readonly stream: Stream; readonly runId: number }[]): Promise<void> {
    const probes = started.flatMap(({ stream, runId }) => {
      const name = this.#guard(stream)?.breaker;
      return name !== undefined && this.#admissions.get(name)?.state === 'half_open' ? [{ name, runId }] : [];
    });
    if (probes.length === 0) return;
    const taken = await this.#sources.breakers!.takeProbes(tx, probes);
    if (taken.includes(false)) throw new Error('the place of a probe was free, and then it was not');
  }

  /** Everything that holds the stream back, once `mayStart` has been asked and everything learnt. */
  holds(stream: Stream): Hold[] {
    const guard = this.#guard(stream);
    if (guard === null) return [];
    const holds: Hold[] = guard.paused ? [guard.paused] : [];
    for (const { kind, name, limit, text } of guard.scopes)
      if ((this.#used.get(text) ?? 0) >= limit) holds.push({ type: 'full', kind, name, limit });
    if (guard.rate) {
      const { template, perMs, max } = guard.rate;
      const missing = 1 - (this.#tokens.get(template) ?? 0);
      if (missing > 0) holds.push({ type: 'rate', template, untilAt: this.#now + Math.ceil((missing * perMs) / max) });
    }
    const admission = guard.breaker === undefined ? undefined : this.#admissions.get(guard.breaker);
    if (admission && admission.state !== 'closed' && this.#admitted(guard.breaker) === 0)
      holds.push({ type: 'breaker', name: guard.breaker!, admission });
    return holds;
  }

  /** Behind an open breaker nothing starts, behind a half-open one the probe. */
  #admitted(breaker: string | undefined): number {
    if (breaker === undefined) return Number.POSITIVE_INFINITY;
    const admission = this.#admissions.get(breaker);
    if (!admission) this.#unknownBreakers.add(breaker);
    else if (admission.state === 'closed') return Number.POSITIVE_INFINITY;
    else if (admission.state === 'half_open' && admission.probeFree) return 1 - (this.#probes.get(breaker) ?? 0);
    return 0;
  }

  /** Null: nothing limits the stream. */
  #guard(stream: Stream): Guard | null {
    let guard = this.#guards.get(stream);
    if (guard === undefined) {
      guard = this.#guardOf(stream);
      this.#guards.set(stream, guard);
    }
    return guard;
  }

  #guardOf(stream: Stream): Guard | null {
    const limits = this.#sources.limitsOf?.(stream.template);
    const place = placeOf(stream.queue);
    const set = this.#settings;
    const scopes: Scope[] = [];
    const limit = (kind: Scope['kind'], name: string, most: number | null) => {
      if (most !== null) scopes.push({ kind, name, limit: most, text: `${kind}:${name}` });
    };
    limit('template', stream.template, set.concurrency('template', stream.template) ?? limits?.concurrency ?? null);
    limit(
      'owner',
      stream.owner,
      stream.owner === '' ? null : (set.concurrency('owner', stream.owner) ?? set.concurrency('owner', ANY)),
    );
    limit('pool', place, set.concurrency('pool', place));
    limit('lane', stream.lane, set.concurrency('lane', stream.lane) ?? LANE_DEFAULTS[stream.lane] ?? null);
    limit('serial', stream.serial, stream.serial === '' ? null : 1);
    const paused =
      set.pause('gateway', ANY) ??
      set.pause('template', stream.template) ??
      set.pause('pool', place) ??
      set.pause('lane', stream.lane) ??
      set.pause('owner', stream.owner);
    const rate = limits?.rate ? { template: stream.template, ...limits.rate } : undefined;
    const breaker = this.#sources.breakers?.policies.of(stream.template)?.name;
    const isFree = scopes.length === 0 && !paused && !rate && breaker === undefined;
    return isFree ? null : { paused, scopes, rate, breaker };
  }
}
