import type { Tx } from '../store/tx.ts';
import type { Admission } from './breaker-state.ts';
import type { Breakers } from './breakers.ts';
import { ANY, type GateKind, type GateSettings, LANE_DEFAULTS, type Pause } from './gate-settings.ts';
import { countSlots, freeSlots, insertSlots, liveStreams, rateBuckets, storeRates } from './line-queries.ts';
import type { Aside } from './ring.ts';
import { placeOf, type Stream } from './streams.ts';

/** What a template asks for itself. */
export interface TemplateLimits {
  /** Running at once. */
  readonly concurrency: number | null;
  /** Starts: at most `max` in `perMs`, as a token bucket. */
  readonly rate: { readonly perMs: number; readonly max: number } | null;
}

/** Why nothing of a stream may start. */
export type Hold =
  | Pause
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
  readonly pauses: readonly Pause[];
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

/** What can be read without writing. */
export type Facts = Pick<Tx, 'all' | 'now'>;

/**
 * How many tasks of a stream may start in this transaction. Facts are read when they are first needed: `mayStart` answers 0 for what
 * it does not know yet and remembers to ask; `learn` (or `observe`) reads all of that at once, then one looks again.
 */
export class Gates {
  readonly #settings: GateSettings;
  readonly #sources: GateSources;
  readonly #now: number;
  /** Scopes of which every live run has its slot; outlives this transaction. */
  readonly #complete: Set<string>;
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

  constructor(settings: GateSettings, sources: GateSources, now: number, complete = new Set<string>()) {
    this.#settings = settings;
    this.#sources = sources;
    this.#now = now;
    this.#complete = complete;
  }

  /** Whether something was asked that only the rows know. */
  get isUnsure(): boolean {
    return this.#unknownScopes.size + this.#unknownRates.size + this.#unknownBreakers.size > 0;
  }

  /** Tasks that may start now; infinity where nothing limits them. */
  mayStart(stream: Stream): number {
    const guard = this.#guard(stream);
    if (guard === null) return Number.POSITIVE_INFINITY;
    return guard.pauses.length > 0 ? 0 : this.#most(guard);
  }

  /** Asks for all that may hold the stream back, also where a pause alone does: before `observe`, where `holds` is to be complete. */
  ask(stream: Stream): void {
    const guard = this.#guard(stream);
    if (guard !== null) this.#most(guard);
  }

  #most(guard: Guard): number {
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

  /** Where `mayStart` has answered 0: until when that stays so whoever reports meanwhile; undefined where a report may change it. */
  aside(stream: Stream): Aside | undefined {
    const guard = this.#guard(stream);
    if (guard === null) return undefined;
    const isShut = guard.scopes.some(({ kind, limit }) => kind === 'owner' && limit === 0);
    if (guard.pauses.length > 0 || isShut) return { untilAt: Number.POSITIVE_INFINITY };
    const admission = guard.breaker === undefined ? undefined : this.#admissions.get(guard.breaker);
    if (admission?.state === 'open') return { untilAt: admission.untilAt };
    const untilAt = this.#tokenAt(guard);
    return untilAt === undefined ? undefined : { untilAt };
  }

  /** Where `mayStart` has answered 0 and nothing sets it aside: whether that holds for every owner of its queue, template and lane. */
  isCrowded(stream: Stream): boolean {
    const guard = this.#guard(stream);
    if (guard === null) return false;
    const isFull = guard.scopes.some(
      ({ kind, limit, text }) => kind !== 'owner' && kind !== 'serial' && (this.#used.get(text) ?? 0) >= limit,
    );
    return isFull || this.#admitted(guard.breaker) === 0;
  }

  /** Reads what was asked for; slots of runs that are over are freed on the way. */
  async learn(tx: Tx): Promise<void> {
    if (this.#unknownScopes.size > 0) {
      const scopes = [...this.#unknownScopes];
      const rows = scopes.map((scope) => [scope]);
      await this.#completeSlots(tx, scopes);
      await tx.run(freeSlots, { rows });
      for (const { scope, used } of await tx.all(countSlots, { rows })) this.#used.set(scope, used);
      this.#unknownScopes.clear();
    }
    await this.#learnMore(tx);
  }

  /** Reads the same for somebody who only looks: writes nothing, and goes by the live runs themselves. */
  async observe(facts: Facts): Promise<void> {
    if (this.#unknownScopes.size > 0) {
      for (const scope of this.#unknownScopes) this.#used.set(scope, 0);
      for (const live of await facts.all(liveStreams, {}))
        for (const scope of scopesOf(live)) {
          const used = this.#used.get(scope);
          if (used !== undefined && this.#unknownScopes.has(scope)) this.#used.set(scope, used + 1);
        }
      this.#unknownScopes.clear();
    }
    await this.#learnMore(facts);
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
    const holds: Hold[] = [...guard.pauses];
    for (const { kind, name, limit, text } of guard.scopes)
      if ((this.#used.get(text) ?? 0) >= limit) holds.push({ type: 'full', kind, name, limit });
    if (guard.rate) {
      const untilAt = this.#tokenAt(guard);
      if (untilAt !== undefined) holds.push({ type: 'rate', template: guard.rate.template, untilAt });
    }
    const admission = guard.breaker === undefined ? undefined : this.#admissions.get(guard.breaker);
    if (admission && admission.state !== 'closed' && this.#admitted(guard.breaker) === 0)
      holds.push({ type: 'breaker', name: guard.breaker!, admission });
    return holds;
  }

  /** Runs that were claimed when nothing limited them have no slots: a limit that is new counts them, too. */
  async #completeSlots(tx: Tx, scopes: readonly string[]): Promise<void> {
    // One run at a time from the first task on: there is nothing to catch up with.
    const news = new Set(scopes.filter((scope) => !scope.startsWith('serial:') && !this.#complete.has(scope)));
    if (news.size === 0) return;
    const live = await tx.all(liveStreams, {});
    const rows = live.flatMap((run) =>
      scopesOf(run)
        .filter((scope) => news.has(scope))
        .map((scope) => [scope, run.run_id]),
    );
    if (rows.length > 0) await tx.run(insertSlots, { rows });
    tx.afterCommit(() => {
      for (const scope of news) this.#complete.add(scope);
    });
  }

  async #learnMore(facts: Facts): Promise<void> {
    if (this.#unknownRates.size > 0) {
      const rows = [...this.#unknownRates.keys()].map((template) => [template]);
      const found = new Map((await facts.all(rateBuckets, { rows })).map((row) => [row.template, row]));
      for (const [template, { perMs, max }] of this.#unknownRates) {
        const row = found.get(template);
        // From the future: the clock was set back since, and nobody knows how long it has been filling.
        const isKnown = row !== undefined && row.at <= this.#now;
        this.#tokens.set(template, isKnown ? Math.min(max, row.tokens + ((this.#now - row.at) * max) / perMs) : max);
      }
      this.#unknownRates.clear();
    }
    if (this.#unknownBreakers.size > 0) {
      const admissions = await this.#sources.breakers!.admit(facts, this.#unknownBreakers);
      for (const [name, admission] of admissions) this.#admissions.set(name, admission);
      this.#unknownBreakers.clear();
    }
  }

  /** When the next start of the template is allowed, where none is now. */
  #tokenAt({ rate }: Guard): number | undefined {
    const missing = rate ? 1 - (this.#tokens.get(rate.template) ?? 0) : 0;
    return rate && missing > 0 ? this.#now + Math.ceil((missing * rate.perMs) / rate.max) : undefined;
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
    const rate = limits?.rate ? { template: stream.template, ...limits.rate } : undefined;
    const breaker = this.#sources.breakers?.policies.of(stream.template)?.name;
    const pauses = this.#pausesOf(stream);
    const scopes = this.#scopesOf(stream, limits?.concurrency ?? null);
    const isFree = scopes.length === 0 && pauses.length === 0 && !rate && breaker === undefined;
    return isFree ? null : { pauses, scopes, rate, breaker };
  }

  /** The widest first. */
  #pausesOf({ template, queue, lane, owner }: Stream): readonly Pause[] {
    const set = this.#settings;
    if (!set.anyPause) return NONE;
    return [
      set.pause('gateway', ANY),
      set.pause('template', template),
      set.pause('pool', placeOf(queue)),
      set.pause('lane', lane),
      set.pause('owner', owner),
    ].filter((pause) => pause !== undefined);
  }

  #scopesOf({ template, queue, lane, owner, serial }: Stream, ofTemplate: number | null): Scope[] {
    const scopes: Scope[] = [];
    const limit = (kind: Scope['kind'], name: string, most: number | null) => {
      if (most !== null) scopes.push({ kind, name, limit: most, text: `${kind}:${name}` });
      // From now on runs start without a slot of this scope.
      else if (this.#complete.size > 0) this.#complete.delete(`${kind}:${name}`);
    };
    const set = this.#settings;
    const place = placeOf(queue);
    limit('template', template, set.concurrency('template', template) ?? ofTemplate);
    if (owner !== '') limit('owner', owner, set.concurrency('owner', owner) ?? set.concurrency('owner', ANY));
    limit('pool', place, set.concurrency('pool', place));
    limit('lane', lane, set.concurrency('lane', lane) ?? LANE_DEFAULTS[lane] ?? null);
    if (serial !== '') limit('serial', serial, 1);
    return scopes;
  }
}

const NONE: readonly Pause[] = [];

/** Every scope that a run of the stream counts in, limited or not. */
function scopesOf({ template, owner, queue, lane, serial }: Omit<Stream, 'id'>): string[] {
  const scopes = [`template:${template}`, `owner:${owner}`, `pool:${placeOf(queue)}`, `lane:${lane}`];
  return serial === '' ? scopes : [...scopes, `serial:${serial}`];
}
