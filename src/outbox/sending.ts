import type { Channel, OutgoingMessage, Part, SendOutcome } from '../channels/channel.ts';
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
  /** Stores that these parts are accepted, before the next is sent; false when the lease is lost. */
  record(partsSent: number, platformIds: readonly string[]): Promise<boolean>;
}

/**
 * Sends the parts of a message that are not sent yet, in order, until one is not accepted. Undefined when the lease got lost on the
 * way: another sender decides then. Rejects only when `record` does.
 */
export async function sendParts(message: LeasedMessage, options: SendOptions): Promise<SendResult | undefined> {
  const parts = options.channel.split(longTextOf(message, options.taskId));
  const platformIds = [...message.platformIds];
  let partsSent = message.partsSent;
  let outcome: SendOutcome = { outcome: 'sent', platformId: '' };
  for (; partsSent < parts.length; partsSent += 1) {
    const resumed = partsSent === message.partsSent;
    if (!resumed && !(await options.record(partsSent, platformIds))) return undefined;
    const part = parts[partsSent]!;
    const pieces = resumed && message.maybeRepeat ? asRepeat(part, options.channel) : [part];
    outcome = await sendPieces(message, pieces, partsSent === 0, resumed, platformIds, options);
    if (outcome.outcome !== 'sent') break;
  }
  return { outcome, partsSent, platformIds, advanced: partsSent > message.partsSent };
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
    outcome = await call(
      {
        ...piece,
        id: options.publicId,
        route: message.route,
        first: leads && index === 0,
        mayBeRepeat: resumed && (message.maybeRepeat || message.safeRepeats > 0),
      },
      options,
    );
    if (outcome.outcome !== 'sent') return outcome;
    platformIds.push(outcome.platformId);
  }
  return outcome;
}

/** One call that ends, whatever the channel does: a throw or silence means that nobody knows. */
async function call(message: OutgoingMessage, options: SendOptions): Promise<SendOutcome> {
  const { channel, limits, safe, signal } = options;
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
    return checked(await Promise.race([channel.send(message, controller.signal), silence]));
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
