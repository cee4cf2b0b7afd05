import type { Update } from 'grammy/types';
import { sameSecret } from '../../ids.ts';
import type { Log } from '../../log.ts';
import type { ChannelDoor, DoorAnswer, DoorRequest } from '../channel.ts';
import type { Pulse } from './pulse.ts';

export interface WebhookOptions {
  readonly path: string;
  /** What Telegram sends in `X-Telegram-Bot-Api-Secret-Token`. */
  readonly secret: string;
  readonly pulse: Pulse;
  readonly log: Log;
  /** Stores the update durably; throws when it could not. */
  accept(update: Update): Promise<unknown>;
}

const BODY_LIMIT = 1024 * 1024;

/**
 * The door for Telegram's webhook. 200 only when the update is stored; every other answer makes Telegram deliver it again (for a
 * day, with growing pauses). It waits for the store alone, never for work: updates of one chat come one after the other.
 */
export function webhookDoor(options: WebhookOptions): ChannelDoor {
  return { method: 'POST', path: options.path, bodyLimit: BODY_LIMIT, open: (request) => open(options, request) };
}

async function open(options: WebhookOptions, request: DoorRequest): Promise<DoorAnswer> {
  const secret = request.headers['x-telegram-bot-api-secret-token'];
  if (typeof secret !== 'string' || !sameSecret(secret, options.secret)) return plain(401, 'the secret token is wrong');
  const update = parseUpdate(request.body);
  if (!update) return plain(400, 'the body is not an update with an integer update_id');
  try {
    await options.accept(update);
  } catch (error) {
    options.log.error('telegram.intake_failed', { reason: error });
    options.pulse.fail('intake', 'Messages from Telegram cannot be stored; Telegram delivers them again.');
    return plain(503, 'not stored; deliver it again');
  }
  options.pulse.ok('intake');
  return plain(200, '');
}

function parseUpdate(body: string): Update | undefined {
  try {
    const value: unknown = JSON.parse(body);
    const isUpdate =
      typeof value === 'object' && value !== null && 'update_id' in value && Number.isSafeInteger(value.update_id);
    return isUpdate ? (value as Update) : undefined;
  } catch {
    return undefined;
  }
}

function plain(status: number, body: string): DoorAnswer {
  return { status, contentType: 'text/plain; charset=utf-8', body };
}
