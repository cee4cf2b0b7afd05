import type { Clock } from '../../clock.ts';
import { messageOf } from '../../errors.ts';
import type { Log } from '../../log.ts';
import type { ChannelPort, OutgoingMessage, TextFile } from '../channel.ts';
import type { ApiResult, WecomApi } from './api.ts';

interface UploadsOptions {
  readonly api: WecomApi;
  readonly port: ChannelPort;
  readonly clock: Clock;
  readonly log: Log;
}

/** The last file a person got. */
interface Upload {
  /** Of the message it belongs to. */
  readonly id: string;
  readonly mediaId: string;
  readonly at: number;
}

/** `isKept`: a repeat of the same message will name the same file, so that WeCom can tell that it is one. */
export type UploadAnswer =
  | { readonly kind: 'uploaded'; readonly mediaId: string; readonly isKept: boolean }
  | { readonly kind: 'failed'; readonly result: ApiResult };

/** Uploads live three days (document 90253); a message is given up long before. */
const KEPT_MS = 48 * 3_600_000;

/** Files for messages: uploaded once per message, also over a restart, because WeCom's duplicate check compares their media ids. */
export class Uploads {
  readonly #options: UploadsOptions;

  constructor(options: UploadsOptions) {
    this.#options = options;
  }

  /** Never rejects. */
  async mediaOf(message: OutgoingMessage, file: TextFile, token: string, signal: AbortSignal): Promise<UploadAnswer> {
    const { port, clock } = this.#options;
    const key = keyOf(message);
    const known = await port.state.get<Upload>(key).catch((error: unknown) => this.#warn(error));
    const isFresh = known !== undefined && Math.abs(clock.now() - known.at) < KEPT_MS;
    if (isFresh && known.id === message.id && known.mediaId !== '')
      return { kind: 'uploaded', mediaId: known.mediaId, isKept: true };
    const result = await this.#upload(file, token, signal);
    const mediaId = result.kind === 'answer' && result.errcode === 0 ? result.fields.media_id : undefined;
    if (typeof mediaId !== 'string') return { kind: 'failed', result };
    return { kind: 'uploaded', mediaId, isKept: await this.#keep(key, { id: message.id, mediaId, at: clock.now() }) };
  }

  /** WeCom does not know the file any more: the next try uploads it again. Never rejects. */
  async forget(message: OutgoingMessage): Promise<void> {
    await this.#keep(keyOf(message), { id: message.id, mediaId: '', at: this.#options.clock.now() });
  }

  #upload(file: TextFile, token: string, signal: AbortSignal): Promise<ApiResult> {
    return this.#options.api.call({
      path: '/cgi-bin/media/upload',
      query: { access_token: token, type: 'file' },
      file: { field: 'media', name: file.name, content: Buffer.from(file.text, 'utf8') },
      signal,
    });
  }

  async #keep(key: string, upload: Upload): Promise<boolean> {
    try {
      await this.#options.port.state.set(key, upload);
      return true;
    } catch (error) {
      this.#warn(error);
      return false;
    }
  }

  #warn(error: unknown): undefined {
    this.#options.log.warn('wecom.upload_not_kept', { error: messageOf(error) });
    return undefined;
  }
}

function keyOf(message: OutgoingMessage): string {
  return `media:${message.route.chat}`;
}
