import type { OutboxTable } from '../../../src/store/outbox-tables.ts';
import type { FlowTable, RunTable, TaskTable } from '../../../src/store/tables.ts';
import type { Rows } from '../rows.ts';
import type { World } from '../world.ts';

/** The rows at the last look and now, and everything beside them. */
export interface Look {
  readonly before: Rows;
  readonly now: Rows;
  readonly world: World;
  readonly changed: Changes;
}

/** What is not the same object as at the last look: new or written rows. */
export interface Changes {
  /** Tasks that changed themselves, or of which a run, the flow or a message did. */
  readonly tasks: readonly TaskTable[];
  readonly runs: readonly RunTable[];
  readonly outbox: readonly OutboxTable[];
}

/** A law. A new one is one small object in a list (`invariants/all.ts`). */
export interface Invariant {
  readonly name: string;
  /** What breaks it, in words with the ids; undefined while it holds. Called after every step and in between. */
  breach(look: Look): string | undefined;
}

/** The first of `items` about which `breach` has something to say. */
export function firstBreach<T>(items: Iterable<T>, breach: (item: T) => string | undefined): string | undefined {
  for (const item of items) {
    const words = breach(item);
    if (words !== undefined) return words;
  }
  return undefined;
}

const NOTHING: Changes = { tasks: [], runs: [], outbox: [] };

export function changesBetween(before: Rows, now: Rows): Changes {
  if (before === now) return NOTHING;
  const runs = changedRows(before.runs, now.runs);
  const outbox = changedRows(before.outbox, now.outbox);
  const ids = new Set(changedRows(before.tasks, now.tasks).map(({ id }) => id));
  for (const { task_id } of [...runs, ...outbox]) if (task_id !== null) ids.add(task_id);
  const flows = new Set(changedRows<FlowTable>(before.flows, now.flows).map(({ id }) => id));
  if (flows.size > 0)
    for (const { id, flow_id } of now.tasks.values()) if (flow_id !== null && flows.has(flow_id)) ids.add(id);
  return { tasks: [...ids].flatMap((id) => now.tasks.get(id) ?? []), runs, outbox };
}

function changedRows<R>(before: ReadonlyMap<number, R>, now: ReadonlyMap<number, R>): R[] {
  if (before === now) return [];
  const found: R[] = [];
  for (const [id, row] of now) if (before.get(id) !== row) found.push(row);
  return found;
}
