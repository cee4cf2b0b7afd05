import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { LoginTable } from '../store/tables.ts';
import type { Tx } from '../store/tx.ts';

export type LoginKind = 'link' | 'cookie';

/** Also one that is over. */
export const loginByHash = hot<{ hash: string; kind: LoginKind }, LoginTable>(
  'login.get',
  (_d, p) => sql`select * from login where token_hash = ${p.hash} and kind = ${p.kind}`,
);

export interface NewLogin {
  hash: string;
  kind: LoginKind;
  userId: string;
  name: string;
  expiresAt: number;
}

export function insertLogin(tx: Tx, login: NewLogin): Promise<number> {
  return tx.exec(
    tx.dialect.build.insertInto('login').values({
      token_hash: login.hash,
      kind: login.kind,
      user_id: login.userId,
      name: login.name,
      created_at: tx.now,
      expires_at: login.expiresAt,
    }),
  );
}

/** Answers the row that was there. */
export function takeLogin(tx: Tx, hash: string, kind: LoginKind): Promise<LoginTable[]> {
  return tx.fetch(
    tx.dialect.build.deleteFrom('login').where('token_hash', '=', hash).where('kind', '=', kind).returningAll(),
  );
}

export function deleteExpiredLogins(tx: Tx): Promise<number> {
  return tx.exec(tx.dialect.build.deleteFrom('login').where('expires_at', '<=', tx.now));
}
