import type { Log } from '../log.ts';
import { audit } from '../sessions/audit.ts';
import type { GateTable } from '../store/line-tables.ts';
import type { Reader, Tx } from '../store/tx.ts';
import type { TaskLine } from './claim.ts';
import { dropGate, gateByName, gatesInOrder, saveGate } from './controls-queries.ts';
import { ANY, type GateKind } from './gate-settings.ts';

/** What is limited or paused by a person. */
export interface Gate {
  readonly kind: GateKind;
  readonly name: string;
  /** Running at once; null: no limit of its own. */
  readonly concurrency: number | null;
  readonly pause: { readonly at: number; readonly by: string; readonly why: string | null } | null;
}

/** A person's wish; what is absent stays as it is. */
export interface GateOrder {
  readonly kind: GateKind;
  readonly name: string;
  readonly concurrency?: number | null | undefined;
  readonly paused?: boolean | undefined;
  /** The actor of the audit entry. */
  readonly by: string;
  readonly why: string | null;
}

export interface ControlsOptions {
  readonly line: Pick<TaskLine, 'settingsChanged'>;
  readonly log: Log;
  /** Called after the commit of a change that may let tasks go: agents that wait should look again. Must not throw. */
  readonly onFreed: () => void;
}

/**
 * Limits and pauses of templates, owners, pools and lanes, and the drain of the whole gateway: rows that claims go by. Every change is
 * an audit entry and a line in the log; a repeated order changes nothing and writes neither.
 */
export class Controls {
  readonly #options: ControlsOptions;
  #drain: Gate['pause'] = null;

  constructor(options: ControlsOptions) {
    this.#options = options;
  }

  /** Since when, by whom and why nothing new starts; null while the gateway is open. */
  get drain(): Gate['pause'] {
    return this.#drain;
  }

  /** Reads whether an earlier process was draining: a restart opens nothing. */
  async load(reader: Reader): Promise<void> {
    const [row] = await reader.all(gateByName, { kind: 'gateway', name: ANY });
    this.#drain = row ? gateOf(row).pause : null;
    if (this.#drain) this.#options.log.warn('gateway.draining', { since: this.#drain.at, by: this.#drain.by });
  }

  /** Part of the caller's transaction; claims follow it from its commit on. Answers what holds then. */
  async change(tx: Tx, order: GateOrder): Promise<Gate> {
    const { kind, name } = order;
    const [row] = await tx.all(gateByName, { kind, name });
    const before = row ? gateOf(row) : { kind, name, concurrency: null, pause: null };
    const after = changed(before, order, tx.now);
    const steps = stepsOf(before, after);
    if (steps.length === 0) return after;
    if (after.concurrency === null && after.pause === null) await tx.run(dropGate, { kind, name });
    else await tx.run(saveGate, rowOf(after));
    for (const step of steps) await this.#tell(tx, order, step);
    tx.afterCommit(() => this.#follow(before, after));
    return after;
  }

  async #tell(tx: Tx, { kind, name, by, why }: GateOrder, { action, data }: Step): Promise<void> {
    const target = kind === 'gateway' ? kind : `${kind}/${name}`;
    const facts = { ...data, ...(why === null ? {} : { why }) };
    await audit(tx, { actor: by, action, target, data: facts });
    tx.afterCommit(() => this.#options.log.warn(action, { target, by, ...data }));
  }

  #follow(before: Gate, after: Gate): void {
    if (after.kind === 'gateway') this.#drain = after.pause;
    this.#options.line.settingsChanged();
    if (isLooser(before, after)) this.#options.onFreed();
  }
}

/** Everything that a person has limited or paused, by kind and name. */
export async function listGates(reader: Pick<Reader, 'all'>): Promise<Gate[]> {
  return (await reader.all(gatesInOrder, {})).map(gateOf);
}

interface Step {
  readonly action: string;
  readonly data: Readonly<Record<string, unknown>>;
}

function changed(before: Gate, { concurrency, paused, by, why }: GateOrder, now: number): Gate {
  const limit = concurrency === undefined ? before.concurrency : concurrency;
  if (paused === undefined) return { ...before, concurrency: limit };
  if (!paused) return { ...before, concurrency: limit, pause: null };
  // A second pause keeps the time and the person of the first; only a new reason is worth a word.
  const isSame = before.pause !== null && (why === null || why === before.pause.why);
  return { ...before, concurrency: limit, pause: isSame ? before.pause : { at: before.pause?.at ?? now, by, why } };
}

function stepsOf(before: Gate, after: Gate): Step[] {
  const steps: Step[] = [];
  const [paused, resumed] =
    after.kind === 'gateway' ? ['gateway.draining', 'gateway.reopened'] : ['gate.paused', 'gate.resumed'];
  if (after.pause !== null && after.pause !== before.pause) steps.push({ action: paused!, data: {} });
  if (after.pause === null && before.pause !== null)
    steps.push({ action: resumed!, data: { pausedAt: before.pause.at, pausedBy: before.pause.by } });
  if (after.concurrency !== before.concurrency)
    steps.push({ action: 'gate.limited', data: { from: before.concurrency, to: after.concurrency } });
  return steps;
}

function isLooser(before: Gate, after: Gate): boolean {
  const most = (gate: Gate) => gate.concurrency ?? Number.POSITIVE_INFINITY;
  // Without a limit of its own a lane has its default, an owner that of all owners: either may be more.
  return (before.pause !== null && after.pause === null) || most(after) !== most(before);
}

function gateOf(row: GateTable): Gate {
  const { kind, name, concurrency, paused_at: at, paused_by: by, reason: why } = row;
  const pause = at === null ? null : { at, by: by ?? '', why };
  return { kind: kind as GateKind, name, concurrency, pause };
}

function rowOf({ kind, name, concurrency, pause }: Gate): GateTable & Record<string, unknown> {
  return {
    kind,
    name,
    concurrency,
    paused_at: pause?.at ?? null,
    paused_by: pause?.by ?? null,
    reason: pause?.why ?? null,
  };
}
