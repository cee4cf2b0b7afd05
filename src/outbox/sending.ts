import type { Channel, Mark, OutgoingMessage, Part, SendOutcome } from '../channels/channel.ts';
import { messageOf } from '../errors.ts';
import { joined } from '../rich-text.ts';
import type { LeasedMessage } from './leases.ts';
import { storable } from './message.ts';
import type { SendResult } from './outcome.ts';

/** Stands in front of a result that may have come before. */
export const REPEAT_MARK = '(possibly a repeat / 可能重复)';

export interface CallLimits {
  /** After this long a call is told to stop. */
  readonly timeoutMs: number;
  /** After this long on top nobody waits for its answer any more; together shorter than a lease. */
  readonly graceMs: number;
}

export interface SendOptions {
  readonly channel: Channel;
  /** The message's public id. */
  readonly publicId: string;
  /** Of the task it is about. */
  readonly taskId?: string;
  /** Whether the platform drops an identical repeat; decides what a call that never answered means. */
  readonly safe: boolean;
  readonly limits: CallLimits;
  /** Ends the sending early. */
  readonly signal: AbortSignal;
  /** Stores that these parts are accepted, before the next is sent. */
  record(partsSent: number, platformIds: readonly string[]): Promise<'go' | 'paced' | 'lost'>;
}

/**
 * Sends a message, or replaces the text of the one it edits. Undefined when the lease got lost on the way: another sender decides then.
 * Rejects only when `record` does.
 */
export async function deliver(message: LeasedMessage, options: SendOptions): Promise<SendResult | undefined> {
  const target = message.edits?.target;
  if (!target) return sendParts(message, options);
  const { partsSent, platformIds } = message;
  const nothingNew = { outcome: { outcome: 'sent', platformId: '' } as const, partsSent, platformIds, advanced: false };
  if (isShown(target, message)) return { ...nothingNew, skipped: 'the message says so already' };
  if (!options.channel.edit) {
    return message.kind === 'update'
      ? { ...nothingNew, skipped: 'the channel cannot edit' }
      : sendParts(message, options);
  }
  // A part begun as a message of its own is gone on with as such.
  if (partsSent > 0) return sendParts(message, options);
  const { publicId: id, channel } = options;
  const [{ file: _inPlaceOnly, ...head } = { text: '' }] = channel.split({ ...longTextOf(message, undefined) });
  const edit = { ...head, id, route: message.route, first: true, mayBeRepeat: message.safeRepeats > 0 };
  const outcome = await call((signal) => channel.edit!(edit, target.platformId, signal), { ...options, safe: true });
  if (outcome.outcome === 'permanent' && outcome.gone) return sendParts(message, options);
  return { outcome, partsSent, platformIds, advanced: false, inPlace: true };
}

/**
 * Sends the parts of a message that are not sent yet, in order, until one is not accepted. Undefined when the lease got lost on the
 * way: another sender decides then. Rejects only when `record` does.
 */
async function sendParts(message: LeasedMessage, options: SendOptions): Promise<SendResult | undefined> {
  const parts = options.channel.split(longTextOf(message, options.taskId));
  const platformIds = [...message.platformIds];
  let partsSent = message.partsSent;
  let outcome: SendOutcome = { outcome: 'sent', platformId: '' };
  for (; partsSent < parts.length; partsSent += 1) {
    const resumed = partsSent === message.partsSent;
    if (!resumed) {
      const recorded = await options.record(partsSent, platformIds);
      if (recorded === 'lost') return undefined;
      if (recorded === 'paced') return { outcome, partsSent, platformIds, advanced: true, paced: true };
    }
    const part = parts[partsSent]!;
    const pieces = resumed && message.maybeRepeat ? asRepeat(part, options.channel) : [part];
    outcome = await sendPieces(message, pieces, partsSent === 0, resumed, platformIds, options);
    if (outcome.outcome !== 'sent') break;
  }
  return { outcome, partsSent, platformIds, advanced: partsSent > message.partsSent };
}

function isShown(target: { text: string; marks?: readonly Mark[] }, { text, marks }: LeasedMessage): boolean {
  return target.text === text && JSON.stringify(target.marks ?? []) === JSON.stringify(marks ?? []);
}

function longTextOf({ text, marks }: LeasedMessage, taskId: string | undefined) {
  return { text, ...(marks && { marks }), ...(taskId !== undefined && { taskId }) };
}

/** The mark may make a full part too long; its pieces count as one part. */
function asRepeat(part: Part, channel: Channel): Part[] {
  const marked = joined([REPEAT_MARK, part], '\n');
  return part.file ? [{ ...marked, file: part.file }] : channel.split(marked);
}

async function sendPieces(
  message: LeasedMessage,
  pieces: readonly Part[],
  leads: boolean,
  resumed: boolean,
  platformIds: string[],
  options: SendOptions,
): Promise<SendOutcome> {
  let outcome: SendOutcome = { outcome: 'sent', platformId: '' };
  for (const [index, piece] of pieces.entries()) {
    const outgoing: OutgoingMessage = {
      ...piece,
      id: options.publicId,
      route: message.route,
      first: leads && index === 0,
      mayBeRepeat: resumed && (message.maybeRepeat || message.safeRepeats > 0),
    };
    outcome = await call((signal) => options.channel.send(outgoing, signal), options);
    if (outcome.outcome !== 'sent') return outcome;
    platformIds.push(outcome.platformId);
  }
  return outcome;
}

/** One call that ends, whatever the channel does: a throw or silence means that nobody knows. */
async function call(
  start: (signal: AbortSignal) => Promise<SendOutcome>,
  { limits, safe, signal }: SendOptions,
): Promise<SendOutcome> {
  const controller = new AbortController();
  const abort = () => controller.abort();
  const timer = setTimeout(abort, limits.timeoutMs);
  let graceTimer: NodeJS.Timeout | undefined;
  const silence = new Promise<SendOutcome>((resolve) => {
    controller.signal.addEventListener('abort', () => {
      const error = 'the platform did not answer in time';
      graceTimer = setTimeout(() => resolve({ outcome: 'unknown', error, safe }), limits.graceMs);
    });
  });
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });
  try {
    return checked(await Promise.race([start(controller.signal), silence]));
  } catch (error) {
    return { outcome: 'unknown', error: `the channel failed: ${short(messageOf(error))}`, safe };
  } finally {
    clearTimeout(timer);
    clearTimeout(graceTimer);
    signal.removeEventListener('abort', abort);
  }
}

const LONGEST_ERROR = 500;

/** What is stored and shown of an error is short and storable. */
function checked(outcome: SendOutcome): SendOutcome {
  return 'error' in outcome ? { ...outcome, error: short(outcome.error) } : outcome;
}

function short(error: string): string {
  return storable(error.slice(0, LONGEST_ERROR));
}
