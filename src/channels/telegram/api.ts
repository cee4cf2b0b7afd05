import { Api, GrammyError, HttpError } from 'grammy';
import { messageOf } from '../../errors.ts';
import { redact } from '../../log.ts';

/** Telegram's own Bot API. */
const PUBLIC_API_ROOT = 'https://api.telegram.org';

export interface ApiSettings {
  readonly token: string;
  readonly apiRoot?: string;
  readonly fetch?: typeof globalThis.fetch;
}

/** grammY's calls, nothing else of it. Throws what `failureOf` understands. @param limitMs after this the call is given up */
export function telegramApi(settings: ApiSettings, limitMs: number): Api {
  return new Api(settings.token, {
    apiRoot: (settings.apiRoot ?? PUBLIC_API_ROOT).replace(/\/+$/, ''),
    timeoutSeconds: limitMs / 1000,
    // grammY's default keeps idle sockets for ever: a send on one that Telegram has closed ends as "nobody knows".
    fetch: botApiAnswers(settings.fetch ?? globalThis.fetch) as never,
  });
}

/** How a call ended that did not succeed. `text` is safe to show: no token. */
export type CallFailure =
  /** The Bot API said no. */
  | {
      readonly kind: 'refused';
      readonly code: number;
      readonly text: string;
      readonly retryAfterMs?: number;
      readonly migrateTo?: number;
    }
  /** No connection came about: surely nothing was done. */
  | { readonly kind: 'unreached'; readonly text: string }
  /** The request may have arrived; the answer did not. */
  | { readonly kind: 'lost'; readonly text: string };

/** Undefined for an error that no call of the Bot API can throw: a fault of ours. */
export function failureOf(error: unknown, token: string): CallFailure | undefined {
  if (error instanceof GrammyError) return refusal(error, token);
  if (!(error instanceof HttpError)) return undefined;
  const chain = causes(error.error);
  const text = redact(chain.map((cause) => codeOf(cause) ?? messageOf(cause)).join(': '), [token]);
  return { kind: chain.some(beforeConnected) ? 'unreached' : 'lost', text };
}

function refusal(error: GrammyError, token: string): CallFailure {
  const { retry_after, migrate_to_chat_id } = error.parameters;
  return {
    kind: 'refused',
    code: error.error_code,
    text: redact(`Telegram answers ${error.error_code}: ${error.description}`, [token]),
    ...(typeof retry_after === 'number' && { retryAfterMs: retry_after * 1000 }),
    ...(typeof migrate_to_chat_id === 'number' && { migrateTo: migrate_to_chat_id }),
  };
}

/**
 * What comes back is made an answer of the Bot API, whoever spoke: a proxy's HTML page or an emulator's `{message}` becomes
 * `{ok: false, error_code}` with the HTTP status where that is a 5xx, else 502. grammY would throw the status away or crash.
 */
function botApiAnswers(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  return async (input, init) => {
    const response = await fetch(input, init);
    const text = await response.text();
    const answer = parseAnswer(text) ?? {
      ok: false,
      error_code: response.status >= 500 ? response.status : 502,
      description: `the answer is not one of the Bot API (HTTP ${response.status})`,
    };
    return Response.json(answer);
  };
}

function parseAnswer(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null || !('ok' in value)) return undefined;
    const refused = value.ok === false && 'error_code' in value && typeof value.error_code === 'number';
    return value.ok === true || refused ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The error and what caused it, outermost first; the parts of an `AggregateError` (several addresses) count as causes. */
function causes(error: unknown): unknown[] {
  const chain: unknown[] = [];
  for (let at = error; at !== undefined && at !== null && chain.length < 5; ) {
    chain.push(at);
    at =
      at instanceof AggregateError && at.errors.length > 0 ? at.errors[0] : at instanceof Error ? at.cause : undefined;
  }
  return chain;
}

function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown }).code;
  return typeof code === 'string' ? code : undefined;
}

/** Errors of the steps before a request is written: name lookup, connect, TLS handshake. */
function beforeConnected(error: unknown): boolean {
  const { syscall } = error as { syscall?: unknown };
  if (syscall === 'connect' || syscall === 'getaddrinfo') return true;
  return BEFORE_CONNECTED.test(codeOf(error) ?? '') || /before secure TLS connection/.test(messageOf(error));
}

const BEFORE_CONNECTED =
  /^(ECONNREFUSED|ENOTFOUND|EAI_|EHOSTUNREACH|ENETUNREACH|ENETDOWN|UND_ERR_CONNECT_TIMEOUT|CERT_|ERR_TLS_|ERR_SSL_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_)/;
