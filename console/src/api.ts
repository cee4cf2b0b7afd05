/** The chat API of the gateway as the page uses it (docs: contract, section 4). */
export interface ChatMessage {
  readonly id: string;
  readonly from: 'user' | 'bot';
  readonly text: string;
  /** How stretches of the text look; places in UTF-16 units, in order, inside of one another or apart. */
  readonly marks?: readonly {
    readonly kind: 'bold' | 'italic' | 'code' | 'pre' | 'link' | 'quote';
    readonly start: number;
    readonly length: number;
    readonly url?: string;
  }[];
  /** Epoch milliseconds. */
  readonly at: number;
  readonly taskId?: string;
  /** What the task brought home; names are strangers' text. */
  readonly files?: readonly { readonly name: string; readonly bytes: number; readonly url: string }[];
}

export interface Me {
  readonly user: string;
  readonly name: string;
  readonly sessionKey: string;
  readonly csrf: string;
}

/** The gateway answered, but not with what was asked for. */
export class Refusal extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export const PAGE_SIZE = 100;

export function whoAmI(): Promise<Me> {
  return call<Me>('/api/chat/me');
}

/** The last messages, or the last before a cursor; oldest first. */
export async function lastMessages(before?: string): Promise<ChatMessage[]> {
  const query = new URLSearchParams({ limit: String(PAGE_SIZE), ...(before === undefined ? {} : { before }) });
  return (await call<{ messages: ChatMessage[] }>(`/api/chat/messages?${query}`)).messages;
}

/** @param messageId repeats with the same id are one message; @returns the id it got */
export async function sendMessage(me: Me, text: string, messageId: string): Promise<string> {
  return (await post<{ inboxId: string }>(me, '/api/chat/messages', { text, messageId })).inboxId;
}

export function signOut(me: Me): Promise<void> {
  return post<void>(me, '/api/chat/logout', {});
}

export function eventsUrl(after: string | undefined): string {
  return `/api/chat/events?${new URLSearchParams({ after: after ?? '0' })}`;
}

function post<T>(me: Me, path: string, body: unknown): Promise<T> {
  const headers = { 'content-type': 'application/json', 'x-errand-csrf': me.csrf };
  return call<T>(path, { method: 'POST', headers, body: JSON.stringify(body) });
}

/** @throws Refusal for an answer that is no success, TypeError when the gateway cannot be reached */
async function call<T>(path: string, init: RequestInit = {}): Promise<T> {
  const response = await fetch(path, { ...init, credentials: 'same-origin', signal: AbortSignal.timeout(30_000) });
  if (!response.ok) throw new Refusal(response.status, await detailOf(response));
  return (response.status === 204 ? undefined : await response.json()) as T;
}

async function detailOf(response: Response): Promise<string> {
  try {
    return ((await response.json()) as { detail?: string }).detail ?? '';
  } catch {
    return '';
  }
}
