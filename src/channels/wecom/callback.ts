import type { Clock } from '../../clock.ts';
import { messageOf } from '../../errors.ts';
import type { Log } from '../../log.ts';
import type { ChannelDoor, ChannelPort, DoorAnswer, DoorRequest } from '../channel.ts';
import { openEnvelope, signatureMatches } from './crypto.ts';
import type { WecomHealth } from './health.ts';
import { readIncoming } from './incoming.ts';
import type { CheckedWecomSettings } from './settings.ts';
import { parseOuterXml } from './xml.ts';

interface CallbackOptions {
  readonly settings: CheckedWecomSettings;
  readonly account: string;
  /** How far the query's timestamp may be from the clock, either way; `off` for samples that are years old. */
  readonly timestampWindowMs: number | 'off';
  readonly port: ChannelPort;
  readonly health: WecomHealth;
  readonly clock: Clock;
  readonly log: Log;
}

/** Bytes. A text message holds at most 2048 bytes of text; the envelope of any message stays far below this. */
const BODY_LIMIT = 65_536;

/**
 * The two doors of the app's 接收消息 address: GET is WeCom's check of the address (document 90930), POST brings messages.
 * Order of the checks: shape, signature, decryption, receiveid, timestamp, content. A refusal says in one line which one failed.
 * A stored message is answered 200 with an empty body at once; anything else makes WeCom deliver again, three times in all.
 */
export function callbackDoors(options: CallbackOptions): ChannelDoor[] {
  const path = `/channels/wecom/callback${options.account === 'default' ? '' : `/${encodeURIComponent(options.account)}`}`;
  const open = (answer: (request: DoorRequest) => Promise<DoorAnswer>) => async (request: DoorRequest) => {
    try {
      return await answer(request);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      options.log.warn('wecom.callback_refused', {
        account: options.account,
        status: error.status,
        reason: error.message,
      });
      return plain(error.status, error.message);
    }
  };
  return [
    { method: 'GET', path, bodyLimit: BODY_LIMIT, open: open(async (request) => confirmAddress(options, request)) },
    { method: 'POST', path, bodyLimit: BODY_LIMIT, open: open((request) => receive(options, request)) },
  ];
}

/** Why a callback was not accepted; the message is the whole answer. */
class Refusal extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

function confirmAddress(options: CallbackOptions, request: DoorRequest): DoorAnswer {
  const text = verifiedText(options, request, single(request, 'echostr'));
  options.health.alive();
  return plain(200, text);
}

async function receive(options: CallbackOptions, request: DoorRequest): Promise<DoorAnswer> {
  const encrypted = parseOuterXml(request.body)?.text('Encrypt');
  if (!encrypted) throw new Refusal(400, 'the body is not XML with one Encrypt');
  const incoming = readIncoming(verifiedText(options, request, encrypted), options.account, options.settings.agentId);
  if (!incoming.ok) throw new Refusal(incoming.status, incoming.reason);
  try {
    await options.port.accept([incoming.message]);
  } catch (error) {
    options.log.error('wecom.message_not_stored', { account: options.account, error: messageOf(error) });
    return plain(503, 'not stored, deliver it again');
  }
  options.health.alive();
  return { status: 200, body: '' };
}

/** The plaintext, once every check of the envelope has passed. */
function verifiedText(options: CallbackOptions, request: DoorRequest, encrypted: string): string {
  const { settings } = options;
  const timestamp = single(request, 'timestamp');
  const signed = { signature: single(request, 'msg_signature'), timestamp, nonce: single(request, 'nonce'), encrypted };
  if (!signatureMatches(settings.token, signed)) {
    throw new Refusal(403, 'msg_signature does not match: compare WECOM_TOKEN with the callback settings of this app');
  }
  const opened = openEnvelope(settings.aesKey, encrypted, settings.corpId);
  if (!opened.ok) throw opened.check === 'receiveid' ? wrongReceiver() : undecryptable(opened.check);
  checkTimestamp(options, timestamp);
  return opened.text;
}

function wrongReceiver(): Refusal {
  return new Refusal(
    403,
    'receiveid is not WECOM_CORP_ID: the message belongs to another company, or the key is wrong',
  );
}

function undecryptable(check: string): Refusal {
  return new Refusal(
    400,
    `decryption failed (${check}): compare WECOM_ENCODING_AES_KEY with the callback settings of this app`,
  );
}

function checkTimestamp(options: CallbackOptions, timestamp: string): void {
  if (!/^\d{1,12}$/.test(timestamp)) throw new Refusal(400, 'timestamp is not a number of seconds');
  if (options.timestampWindowMs === 'off') return;
  if (Math.abs(options.clock.now() - Number(timestamp) * 1_000) > options.timestampWindowMs) {
    throw new Refusal(403, 'timestamp is outside WECOM_TIMESTAMP_WINDOW: check the clock of this machine');
  }
}

function single(request: DoorRequest, name: string): string {
  const value = request.query[name];
  if (typeof value !== 'string' || value === '') throw new Refusal(400, `${name} must be given once in the query`);
  return value;
}

function plain(status: number, body: string): DoorAnswer {
  return { status, contentType: 'text/plain; charset=utf-8', body };
}
