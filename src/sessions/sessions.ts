import type { Route } from '../channels/channel.ts';
import type { Reader, Tx } from '../store/tx.ts';
import type { Lang } from './lang.ts';
import { changeSession, sessionByKey, upsertSessions } from './queries.ts';

export interface Session {
  readonly sessionKey: string;
  /** Where the conversation was last seen: the destination of tasks made through the API. Flows keep the route they came with. */
  readonly route: Route;
  /** Null: not chosen. */
  readonly lang: Lang | null;
  /** Null: not chosen. */
  readonly notifyPolicy: SessionNotifyPolicy | null;
  readonly createdAt: number;
  readonly lastMessageAt: number;
}

export type SessionNotifyPolicy = 'done_only' | 'state_changes' | 'silent';

export interface SessionTouch {
  readonly sessionKey: string;
  readonly route: Route;
  readonly at: number;
}

/** Creates or refreshes conversations; the latest message of each decides its route, in whatever order they come. */
export async function touchSessions(tx: Tx, touches: readonly SessionTouch[]): Promise<void> {
  const latest = new Map<string, SessionTouch>();
  for (const touch of touches) {
    const known = latest.get(touch.sessionKey);
    if (!known || known.at <= touch.at) latest.set(touch.sessionKey, touch);
  }
  if (latest.size === 0) return;
  const rows = [...latest.values()].map(({ sessionKey, route, at }) => [sessionKey, JSON.stringify(route), at]);
  await tx.run(upsertSessions, { rows });
}

export async function getSession(reader: Reader, sessionKey: string): Promise<Session | undefined> {
  const [row] = await reader.all(sessionByKey, { key: sessionKey });
  if (!row) return undefined;
  return {
    sessionKey: row.session_key,
    route: JSON.parse(row.route) as Route,
    lang: row.lang as Lang | null,
    notifyPolicy: row.notify_policy as SessionNotifyPolicy | null,
    createdAt: row.created_at,
    lastMessageAt: row.last_message_at,
  };
}

/** Stores what a person chose for a conversation; null takes a choice back. False when there is no such conversation. */
export async function setSession(
  tx: Tx,
  sessionKey: string,
  choice: { readonly lang?: Lang | null; readonly notifyPolicy?: SessionNotifyPolicy | null },
): Promise<boolean> {
  return (await changeSession(tx, sessionKey, choice)) > 0;
}
