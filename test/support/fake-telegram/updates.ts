import type { Json } from './answers.ts';
import { badRequest, Refusal } from './answers.ts';

export interface Update extends Json {
  update_id: number;
}

export interface Webhook {
  url: string;
  secret: string | undefined;
}

/** Kinds that arrive only when asked for by name (Bot API, getUpdates). */
const OPT_IN = new Set(['chat_member', 'message_reaction', 'message_reaction_count']);
/** An offset this far beyond the newest id is ignored and the queue is read from its head (Bot API server, TQueue). */
const FUTURE_SLACK = 10;
const RETRY_MS = 5;
const RETRY_CAP_MS = 100;

/** The queue of one bot: long polling with confirmation by offset, or a webhook with redelivery; never both. */
export class Updates {
  /** Every confirmed id. */
  readonly confirmed = new Set<number>();
  /** Answer codes of the webhook, in order. */
  readonly deliveries: { update_id: number; status: number }[] = [];
  webhook: Webhook | undefined;
  allowed: readonly string[] | undefined;
  nextId = 700_000_001;
  /** Updates that are handed out once more whatever the offset says. */
  readonly #again: Update[] = [];
  #pending: Update[] = [];
  #waiting: { wake(): void; terminate(why: string): void } | undefined;
  #delivering: Promise<void> = Promise.resolve();
  #closed = false;

  push(content: Json): Update {
    const update = { ...content, update_id: this.nextId };
    this.nextId += 1;
    const kind = Object.keys(content)[0] ?? '';
    if (this.allowed ? !this.allowed.includes(kind) : OPT_IN.has(kind)) return update;
    this.#pending.push(update);
    this.#wake();
    return update;
  }

  /** Delivers an update once more, as platforms sometimes do. */
  again(update: Update): void {
    if (this.webhook) this.#pending.push(update);
    else this.#again.push(update);
    this.#wake();
  }

  async poll(params: Json, gone: AbortSignal): Promise<Update[]> {
    if (this.webhook) {
      throw new Refusal(
        409,
        "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first",
      );
    }
    this.terminatePoll('terminated by other getUpdates request; make sure that only one bot instance is running');
    if (Array.isArray(params.allowed_updates)) this.allowed = params.allowed_updates as string[];
    if (typeof params.offset === 'number') this.#confirm(params.offset);
    const limit = Number(params.limit ?? 100);
    if (limit < 1 || limit > 100) throw badRequest('limit is out of range');
    if (this.#nothing()) await this.#wait(Math.min(Number(params.timeout ?? 0), 50) * 1000, gone);
    return [...this.#again.splice(0), ...this.#pending].slice(0, limit);
  }

  terminatePoll(why: string): void {
    this.#waiting?.terminate(why);
  }

  setWebhook(webhook: Webhook | undefined): void {
    this.webhook = webhook;
    if (webhook) this.terminatePoll('terminated by setWebhook request');
    this.#wake();
  }

  close(): void {
    this.#closed = true;
    this.#waiting?.wake();
  }

  #nothing(): boolean {
    return this.#pending.length + this.#again.length === 0;
  }

  #confirm(offset: number): void {
    if (offset > this.nextId + FUTURE_SLACK) return;
    for (const { update_id: id } of this.#pending) if (id < offset) this.confirmed.add(id);
    this.#pending = this.#pending.filter(({ update_id: id }) => id >= offset);
  }

  #wait(ms: number, gone: AbortSignal): Promise<void> {
    if (ms === 0) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const end = (settle: () => void) => {
        clearTimeout(timer);
        if (this.#waiting === waiting) this.#waiting = undefined;
        settle();
      };
      const timer = setTimeout(() => end(resolve), ms);
      const waiting = {
        wake: () => end(resolve),
        terminate: (why: string) => end(() => reject(new Refusal(409, `Conflict: ${why}`))),
      };
      this.#waiting = waiting;
      gone.addEventListener('abort', () => end(resolve), { once: true });
    });
  }

  #wake(): void {
    if (this.#nothing()) return;
    this.#waiting?.wake();
    if (this.webhook) this.#delivering = this.#delivering.then(() => this.#deliverAll());
  }

  /** One after the other; each until it is taken, as long as the webhook stands. */
  async #deliverAll(): Promise<void> {
    for (let pauseMs = RETRY_MS; this.webhook && !this.#closed && this.#pending.length > 0; ) {
      const update = this.#pending[0]!;
      const status = await deliver(this.webhook, update);
      this.deliveries.push({ update_id: update.update_id, status });
      if (status >= 200 && status < 300) {
        this.#pending.shift();
        this.confirmed.add(update.update_id);
        pauseMs = RETRY_MS;
        continue;
      }
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
      pauseMs = Math.min(pauseMs * 2, RETRY_CAP_MS);
    }
  }
}

/** The HTTP status, or 0 where there was no answer. */
async function deliver(webhook: Webhook, update: Update): Promise<number> {
  const headers: Record<string, string> = { 'content-type': 'application/json' };
  if (webhook.secret !== undefined) headers['X-Telegram-Bot-Api-Secret-Token'] = webhook.secret;
  try {
    const response = await fetch(webhook.url, { method: 'POST', headers, body: JSON.stringify(update) });
    await response.text();
    return response.status;
  } catch {
    return 0;
  }
}
