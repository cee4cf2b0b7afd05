import type { IdCodec } from '../ids.ts';
import type { Reader, Tx, Verb } from '../store/tx.ts';
import { type Cutoffs, type Key, KINDS, type Kind } from './prune-queries.ts';

/** A row that is due with everything that goes with it, as it stands in the archive. */
export interface Bundle {
  readonly key: Key;
  /** One JSON line per row, without a line end. */
  readonly lines: readonly string[];
}

/** What is to be pruned, and by which cutoffs it was found to be due. */
export interface PruneOrder {
  readonly bundle: Bundle;
  readonly cutoffs: Cutoffs;
}

/** Reads the rows of these keys as they are to be archived; a key whose row is gone has no bundle. */
export async function readBundles(
  reader: Reader,
  kind: Kind,
  keys: readonly Key[],
  ids: Pick<IdCodec, 'encode'>,
): Promise<Bundle[]> {
  const lines = new Map<Key, string[]>(keys.map((key) => [key, []]));
  const rows = keys.map((key) => [key]);
  for (const { table, owner, secret, rows: query } of kind.parts.toReversed()) {
    for (const row of await reader.all(query, { rows })) {
      const kept = Object.fromEntries(Object.entries(row).filter(([name]) => !secret.includes(name)));
      const id = typeof row.id === 'number' ? { id: ids.encode(row.id) } : {};
      lines.get(row[owner] as Key)?.push(JSON.stringify({ table, ...id, row: kept }));
    }
  }
  return [...lines].filter(([, own]) => own.length > 0).map(([key, own]) => ({ key, lines: own }));
}

/**
 * Removes rows that are archived. Answers true where that took effect. A row that is not due any more (its flow was opened again),
 * or not as it was archived (a late report came in between), stays, and is looked at again with the next pass.
 */
export function pruneVerbOf(kind: Kind, ids: Pick<IdCodec, 'encode'>): Verb<PruneOrder, boolean> {
  return { name: `retention.prune_${kind.table}`, rank: 90, run: (tx, orders) => prune(tx, kind, orders, ids) };
}

async function prune(
  tx: Tx,
  kind: Kind,
  orders: readonly PruneOrder[],
  ids: Pick<IdCodec, 'encode'>,
): Promise<boolean[]> {
  const cutoffs = orders[0]!.cutoffs;
  const due = await tx.all(kind.due, { ...cutoffs, rows: orders.map(({ bundle }) => [bundle.key]) });
  const current = await readBundles(
    tx,
    kind,
    due.map((row) => row.key),
    ids,
  );
  const same = new Map(current.map((bundle) => [bundle.key, textOf(bundle)]));
  const gone = new Set(
    orders.filter(({ bundle }) => same.get(bundle.key) === textOf(bundle)).map(({ bundle }) => bundle.key),
  );
  if (gone.size > 0) {
    const rows = [...gone].map((key) => [key]);
    for (const part of kind.parts) await tx.run(part.remove, { rows });
  }
  return orders.map(({ bundle }) => gone.has(bundle.key));
}

/** Whatever order the database gave the rows in. */
const textOf = ({ lines }: Bundle) => [...lines].sort().join('\n');

/** All kinds with their verbs, in the order in which they are pruned. */
export function prunableKinds(ids: Pick<IdCodec, 'encode'>): { kind: Kind; verb: Verb<PruneOrder, boolean> }[] {
  return KINDS.map((kind) => ({ kind, verb: pruneVerbOf(kind, ids) }));
}
