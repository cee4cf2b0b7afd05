import type { ChannelName, Mark, Route } from '../channels/channel.ts';
import type { RatesOf } from '../channels/rates.ts';
import type { Tx, Verb } from '../store/tx.ts';
import { membersOfDigests } from './digest.ts';
import { showInPlace, withTargets } from './edit.ts';
import { type ChatKey, chatText, type EmitOutbox, type MessageKind, type OutboxEvent } from './message.ts';
import {
  holdChats,
  leaseMessages,
  type MessageRow,
  recordParts,
  sendingMessages,
  settleMessages,
  supersedeUpdates,
} from './queries.ts';
import { RateGate } from './rate-gate.ts';

/** How long a sender may be silent about one part before the message is taken from it. */
export const LEASE_MS = 60_000;

/** A message in the hands of one sender. */
export interface LeasedMessage extends ChatKey {
  readonly id: number;
  /** Proves the lease in every later write. */
  readonly fence: number;
  readonly route: Route;
  readonly kind: MessageKind;
  readonly text: string;
  readonly marks?: readonly Mark[];
  readonly taskId?: number;
  readonly maybeRepeat: boolean;
  readonly safeRepeats: number;
  readonly giveUpAt: number;
  readonly leaseUntil: number;
  readonly partsSent: number;
  readonly platformIds: readonly string[];
  /** It replaces the text of another message; `target`: that message, where the platform shows it. */
  readonly edits?: {
    readonly key: string;
    readonly target?: {
      readonly id: number;
      readonly platformId: string;
      readonly text: string;
      readonly marks?: readonly Mark[];
    };
  };
}

/** How a lease ends. Counters are the new values, not differences. */
export interface Settlement {
  readonly message: LeasedMessage;
  readonly status: 'pending' | 'sent' | 'unknown' | 'dead' | 'expired' | 'superseded';
  /** Of a pending message: not before this. */
  readonly nextAt: number;
  readonly error: string | null;
  readonly maybeRepeat: boolean;
  readonly safeRepeats: number;
  readonly partsSent: number;
  readonly platformIds: readonly string[];
  /** The text of its target was replaced; it is no message of its own. */
  readonly inPlace?: boolean;
  /** Also pauses the chat: until a time, or until it speaks again. */
  readonly hold?: { readonly until: number } | { readonly unreachable: true };
}

interface PartReceipt {
  readonly message: LeasedMessage;
  readonly partsSent: number;
  readonly platformIds: readonly string[];
}

/** The delivery's writes. A lost lease is an answer, not an error: nothing changes then. */
export interface Leases {
  /**
   * By id, counting one call; `paced` where the rates do not allow one now, undefined where it is not due any more, held, not the first
   * of its chat, or the chat has a sender.
   */
  readonly lease: Verb<number, LeasedMessage | 'paced' | undefined>;
  /**
   * Stores that parts were accepted, renews the lease and counts the call of the next part. `lost`: stop sending; `paced`: settle as
   * pending, the rates do not allow the next part now.
   */
  readonly recordPart: Verb<PartReceipt, 'go' | 'paced' | 'lost'>;
  /** Ends leases; false where the lease was lost. */
  readonly settle: Verb<Settlement, boolean>;
  /** Marks updates as superseded that these messages say more than. */
  readonly supersede: Verb<number, void>;
  /** Messages whose lease ended at `before` or earlier; `Infinity` for all that are being sent. */
  abandoned(tx: Tx, before: number): Promise<LeasedMessage[]>;
}

export function createLeases(emit: EmitOutbox, ratesOf: RatesOf | undefined): Leases {
  return {
    lease: { name: 'outbox.lease', run: (tx, ids) => lease(tx, ids, ratesOf) },
    recordPart: { name: 'outbox.record_part', run: (tx, receipts) => recordPart(tx, receipts, ratesOf) },
    settle: { name: 'outbox.settle', run: (tx, items) => settle(tx, items, emit) },
    supersede: {
      name: 'outbox.supersede',
      async run(tx, ids) {
        await tx.run(supersedeUpdates, {
          rows: ids.map((id) => [id]),
          reason: 'the result came before it could be sent',
        });
        return ids.map(() => undefined);
      },
    },
    abandoned: async (tx, before) =>
      withTargets(
        tx,
        (await tx.all(sendingMessages, { before: Math.min(before, Number.MAX_SAFE_INTEGER) })).map(leased),
      ),
  };
}

async function lease(
  tx: Tx,
  ids: readonly number[],
  ratesOf: RatesOf | undefined,
): Promise<(LeasedMessage | 'paced' | undefined)[]> {
  const gate = await RateGate.open(tx, ids, ratesOf);
  const admitted = gate.admitted(ids);
  const isAdmitted = new Set(admitted);
  const rows = await tx.all(leaseMessages, { rows: admitted.map((id) => [id]), now: tx.now, until: tx.now + LEASE_MS });
  await gate.count(rows.map((row) => row.id));
  const messages = await withTargets(tx, rows.map(leased));
  const found = new Map(messages.map((message) => [message.id, message]));
  return ids.map((id) => (isAdmitted.has(id) ? found.get(id) : 'paced'));
}

async function recordPart(
  tx: Tx,
  receipts: readonly PartReceipt[],
  ratesOf: RatesOf | undefined,
): Promise<('go' | 'paced' | 'lost')[]> {
  const rows = receipts.map(({ message, partsSent, platformIds }) => [
    message.id,
    message.fence,
    partsSent,
    JSON.stringify(platformIds),
  ]);
  const changed = new Set((await tx.all(recordParts, { rows, until: tx.now + LEASE_MS })).map((row) => row.id));
  const gate = await RateGate.open(tx, [...changed], ratesOf);
  const admitted = gate.admitted([...changed]);
  await gate.count(admitted);
  const go = new Set(admitted);
  return receipts.map(({ message: { id } }) => (go.has(id) ? 'go' : changed.has(id) ? 'paced' : 'lost'));
}

async function settle(tx: Tx, settlements: readonly Settlement[], emit: EmitOutbox): Promise<boolean[]> {
  const rows = await tx.all(settleMessages, {
    rows: settlements.map((settlement) => settleRow(settlement, tx.now)),
    now: tx.now,
  });
  const changed = new Set(rows.map((row) => row.id));
  const effective = settlements.filter(({ message }) => changed.has(message.id));
  await hold(tx, effective);
  await showInPlace(tx, effective);
  const events = endings(rows, effective);
  events.push(...(await membersOfDigests(tx, events)));
  if (events.length > 0) emit(tx, events);
  return settlements.map(({ message }) => changed.has(message.id));
}

function settleRow(settlement: Settlement, now: number): unknown[] {
  const { message, status } = settlement;
  return [
    message.id,
    message.fence,
    status,
    // So it is found again when the chat speaks.
    settlement.hold && 'unreachable' in settlement.hold ? now : settlement.nextAt,
    settlement.error,
    settlement.maybeRepeat ? 1 : 0,
    settlement.safeRepeats,
    settlement.partsSent,
    settlement.platformIds.length > 0 ? JSON.stringify(settlement.platformIds) : null,
    status === 'sent' ? now : null,
  ];
}

async function hold(tx: Tx, settlements: readonly Settlement[]): Promise<void> {
  // A statement that inserts one chat twice is an error on PostgreSQL: the last word per chat counts.
  const rows = new Map<string, unknown[]>();
  for (const { message, hold: wanted, error } of settlements) {
    if (!wanted) continue;
    const [until, since] = 'until' in wanted ? [wanted.until, null] : [null, tx.now];
    rows.set(chatText(message), [message.channel, message.account, message.chat, until, since, error, tx.now]);
  }
  if (rows.size > 0) await tx.run(holdChats, { rows: [...rows.values()] });
}

function endings(rows: readonly MessageRow[], settlements: readonly Settlement[]): OutboxEvent[] {
  const byId = new Map(rows.map((row) => [row.id, row]));
  return settlements.flatMap(({ message, status }): OutboxEvent[] => {
    if (status === 'pending' || status === 'superseded') return [];
    const row = byId.get(message.id)!;
    const { id, kind, channel, account, chat } = message;
    const about = {
      id,
      kind,
      channel,
      account,
      chat,
      sessionKey: row.session_key,
      taskId: row.task_id,
      flowId: row.flow_id,
      dedupeKey: row.dedupe_key,
    };
    return [status === 'sent' ? { type: 'outbox.sent', ...about } : { type: 'outbox.dead', status, ...about }];
  });
}

function leased(row: MessageRow): LeasedMessage {
  return {
    id: row.id,
    fence: row.attempts,
    channel: row.channel as ChannelName,
    account: row.account,
    chat: row.chat,
    route: JSON.parse(row.route) as Route,
    kind: row.kind,
    text: row.text,
    ...(row.marks !== null && { marks: JSON.parse(row.marks) as Mark[] }),
    ...(row.task_id !== null && { taskId: row.task_id }),
    maybeRepeat: row.maybe_repeat === 1,
    safeRepeats: row.safe_repeats,
    giveUpAt: row.give_up_at,
    leaseUntil: row.lease_until,
    partsSent: row.parts_sent,
    platformIds: row.platform_ids === null ? [] : (JSON.parse(row.platform_ids) as string[]),
    ...(row.edits === null ? {} : { edits: { key: row.edits } }),
  };
}
