import type { Tx } from '../store/tx.ts';
import { allGates, type GateRow } from './line-queries.ts';

/** What can be limited or paused by a person, and its name there. */
export const GATE_KINDS = ['template', 'owner', 'pool', 'lane', 'gateway'] as const;
export type GateKind = (typeof GATE_KINDS)[number];

/** Stands for every owner that has no limit of its own, and for the gateway itself. */
export const ANY = '*';

/** Lanes that are limited unless a person says otherwise; all others take what the agents can. */
export const LANE_DEFAULTS: Readonly<Record<string, number>> = { cron: 1, subagent: 8, nested: 4 };

/** A pause that a person has set. */
export interface Pause {
  readonly type: 'paused';
  readonly kind: GateKind;
  readonly name: string;
  readonly reason: string | null;
}

/** Limits and pauses that people have set, as read from the rows. */
export class GateSettings {
  readonly #rows: ReadonlyMap<string, GateRow>;
  /** Whether anything at all is paused. */
  readonly anyPause: boolean;

  private constructor(rows: readonly GateRow[]) {
    this.#rows = new Map(rows.map((row) => [`${row.kind}:${row.name}`, row]));
    this.anyPause = rows.some((row) => row.paused_at !== null);
  }

  static async read(reader: Pick<Tx, 'all'>): Promise<GateSettings> {
    return new GateSettings(await reader.all(allGates, {}));
  }

  concurrency(kind: GateKind, name: string): number | null {
    return this.#rows.get(`${kind}:${name}`)?.concurrency ?? null;
  }

  /** The pause of this, or undefined. */
  pause(kind: GateKind, name: string): Pause | undefined {
    const row = this.#rows.get(`${kind}:${name}`);
    return row && row.paused_at !== null ? { type: 'paused', kind, name, reason: row.reason } : undefined;
  }
}
