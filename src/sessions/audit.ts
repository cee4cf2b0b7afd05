import type { Tx } from '../store/tx.ts';
import { insertAudit } from './queries.ts';

export interface AuditEntry {
  /** Who: `cli`, `api:<token name>`, `person:<channel>/<account>/<user>`. */
  readonly actor: string;
  /** What: `access.approved`, `group.denied`. */
  readonly action: string;
  /** To whom or what: `telegram/default/42`. */
  readonly target: string;
  /** More, as JSON; no secrets. */
  readonly data?: Readonly<Record<string, unknown>>;
}

/** Writes down who changed what. Part of the change's transaction: there is no change without its entry. */
export async function audit(tx: Tx, entry: AuditEntry): Promise<void> {
  const { actor, action, target, data } = entry;
  await insertAudit(tx, { id: await tx.ids(1), actor, action, target, data: data ? JSON.stringify(data) : null });
}
