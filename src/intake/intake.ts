import type { Route } from '../channels/channel.ts';
import type { CommandRooms } from '../commands/command.ts';
import { messageOf } from '../errors.ts';
import { createRowLoop, type RowLoop } from '../followup/row-loop.ts';
import type { Log } from '../log.ts';
import { limitedViewText } from '../notifications/refusals.ts';
import { asRich } from '../rich-text.ts';
import { accessIn } from '../sessions/access.ts';
import { sessionKeyOf } from '../sessions/keys.ts';
import { type Lang, langOf } from '../sessions/lang.ts';
import { GROUP_MS, mayTell } from '../sessions/refusals.ts';
import { getSession, touchSessions } from '../sessions/sessions.ts';
import type { Store } from '../store/store.ts';
import type { Tx } from '../store/tx.ts';
import type { RefusalReason, Refusals } from '../telemetry/refusals.ts';
import { type Admitted, admit } from './admission.ts';
import { answer } from './answer.ts';
import { doubtOf } from './doubt.ts';
import { extraOf } from './extra.ts';
import { countAttempt, type NewInboxRow, newMessages, settleMessage } from './queries.ts';
import { ignored, replyKey, type Verdict } from './verdict.ts';

export interface IntakeOptions {
  readonly store: Store;
  readonly log: Log;
  /** What commands act through. */
  readonly rooms: CommandRooms;
  /** Counts who was refused. Absent: nobody counts. */
  readonly refusals?: Pick<Refusals, 'count'>;
  /** Older messages are asked about before they start anything, milliseconds; null: never; default 30 min. */
  readonly staleAfterMs?: number | null;
  /** Pause before a message that could not be worked off is tried again, milliseconds; default 1 s. */
  readonly retryPauseMs?: number;
}

/** A message whose processing throws is put aside after so many tries, with an apology. */
export const MAX_ATTEMPTS = 3;

const STALE_AFTER_MS = 1_800_000;

/**
 * The loop inbox → access → command or errand. Each message is worked off in one transaction: the effect, the answer and the mark
 * on the message are there together or not at all, so a crash at any point repeats nothing (the answer's key is the message).
 */
export function createIntake(options: IntakeOptions): RowLoop {
  return createRowLoop<NewInboxRow>({
    store: options.store,
    log: options.log,
    name: 'intake',
    read: (limit) => options.store.all(newMessages, { limit }),
    work: (tx, row) => workOff(tx, row, options),
    onFault: (tx, row, error) => onFault(tx, row, error, options),
    ...(options.retryPauseMs === undefined ? {} : { retryPauseMs: options.retryPauseMs }),
  });
}

async function workOff(tx: Tx, row: NewInboxRow, options: IntakeOptions): Promise<void> {
  const route = JSON.parse(row.route) as Route;
  await settle(tx, row, route, await verdictOn(tx, row, route, options), options);
}

async function verdictOn(tx: Tx, row: NewInboxRow, route: Route, options: IntakeOptions): Promise<Verdict> {
  if (row.kind === 'other') return extraOf(row).joined ? arrived(tx, row, route, options) : ignored('not_text');
  if (row.addressed === 0) return ignored('not_addressed');
  const text = row.text.trim();
  if (text === '') return ignored('empty');
  const admitted = await admit(tx, { row, route, text, lang: options.rooms.lang });
  return 'status' in admitted ? admitted : conversation(tx, row, { ...admitted, text }, route, options);
}

async function conversation(
  tx: Tx,
  row: NewInboxRow,
  { userId, role, text }: Admitted & { readonly text: string },
  route: Route,
  { rooms, staleAfterMs = STALE_AFTER_MS }: IntakeOptions,
): Promise<Verdict> {
  const sessionKey = sessionKeyOf(route, userId);
  const doubt = await doubtOf(tx, row, { route, sessionKey }, staleAfterMs);
  if (doubt && 'status' in doubt) return doubt;
  await touchSessions(tx, [{ sessionKey, route, at: row.received_at }]);
  const lang = langOf(await getSession(tx, sessionKey), text, rooms.lang);
  const speaker = { userId, name: row.sender_name, role };
  const { limitedView } = extraOf(row);
  return answer(tx, { text, lang, speaker, route, sessionKey, inboxId: row.id, rooms, doubt, limitedView });
}

/** Somebody we know has added the bot to a group in which it does not see everything: said at once, or it looks deaf. */
async function arrived(tx: Tx, row: NewInboxRow, route: Route, { rooms }: IntakeOptions): Promise<Verdict> {
  const { channel, account } = route;
  const { role } = await accessIn(tx, route, row.sender_id ?? undefined);
  if (role === null || !extraOf(row).limitedView) return ignored('joined');
  if (!(await mayTell(tx, [{ channel, account, whom: `chat:${route.chat}`, everyMs: GROUP_MS }])))
    return ignored('joined');
  return { ...ignored('joined'), reply: limitedViewText(langOf(undefined, row.sender_name ?? '', rooms.lang)) };
}

async function onFault(tx: Tx, row: NewInboxRow, error: unknown, options: IntakeOptions): Promise<void> {
  await tx.run(countAttempt, { id: row.id });
  if (row.attempts + 1 < MAX_ATTEMPTS) return;
  const route = routeOf(row);
  // Nothing is said to people who may not talk, also when we fail.
  const isKnown = route !== undefined && (await accessIn(tx, route, row.sender_id ?? undefined)).role !== null;
  const reply = isKnown ? apology(langOf(undefined, row.text, options.rooms.lang)) : undefined;
  await settle(tx, row, route, { status: 'failed', reason: messageOf(error).slice(0, 500), reply }, options);
}

async function settle(
  tx: Tx,
  row: NewInboxRow,
  route: Route | undefined,
  verdict: Verdict,
  options: IntakeOptions,
): Promise<void> {
  const { status, reason, reply } = verdict;
  const session = status === 'ignored' || !route || row.sender_id === null ? null : sessionKeyOf(route, row.sender_id);
  if (verdict.refusal !== undefined) tellOf(tx, row, verdict.refusal, options);
  const marked = await tx.all(settleMessage, { id: row.id, status, session, reason, now: tx.now });
  // Thrown, so that the effect of a message that is not new any more is rolled back.
  if (marked.length === 0) throw new Error('the message was worked off by somebody else');
  if (reply === undefined || route === undefined) return;
  const key = { dedupeKey: replyKey(row.id), ...(session === null ? {} : { sessionKey: session }) };
  await options.rooms.outbox.enqueue(tx, [{ route, kind: 'reply', ...asRich(reply), ...key }]);
}

/** What was rolled back was not refused. */
function tellOf(tx: Tx, row: NewInboxRow, reason: RefusalReason, { log, refusals }: IntakeOptions): void {
  const { channel, account, sender_id: userId } = row;
  tx.afterCommit(() => {
    refusals?.count(reason);
    log.info('access.refused', { channel, account, reason, ...(userId === null ? {} : { userId }) });
  });
}

function routeOf(row: NewInboxRow): Route | undefined {
  try {
    return JSON.parse(row.route) as Route;
  } catch {
    return undefined;
  }
}

function apology(lang: Lang): string {
  return {
    en: 'Something went wrong on my side, and I could not act on your message. An administrator can find the reason in the log.',
    zh: '我这边出了问题，没能处理您的消息。管理员可以在日志中查看原因。',
  }[lang];
}
