import { type DestinationStream, type Logger, pino } from 'pino';

export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent';
export type LogFields = Record<string, unknown>;

/** Named events with fields: `log.info('task.claimed', { taskId, agentId })`. Secrets are masked here, whatever the caller passes. */
export interface Log {
  debug(event: string, fields?: LogFields): void;
  info(event: string, fields?: LogFields): void;
  warn(event: string, fields?: LogFields): void;
  error(event: string, fields?: LogFields): void;
  child(fields: LogFields): Log;
  /** From now on this value is masked in every line of this logger and its children. Values under 6 characters are ignored. */
  addSecret(value: string): void;
}

/** Telegram bot tokens, also inside URLs (`/bot123:AA…/getMe`), bearer headers, and secrets in query strings. */
const PATTERNS: readonly [RegExp, string][] = [
  [/\b\d{3,}:[A-Za-z0-9_-]{20,}/g, '[telegram-token]'],
  [/(\/bot)\d+:[^/\s"']+/g, '$1[telegram-token]'],
  [/(Bearer\s+)[A-Za-z0-9._~+/=-]{6,}/gi, '$1[secret]'],
  [/([?&](?:access_token|corpsecret|key|token|secret)=)[^&\s"']+/gi, '$1[secret]'],
];

/** Masks what looks like a credential, and the given literal secrets. */
export function redact(text: string, secrets: Iterable<string> = []): string {
  let out = text;
  for (const secret of secrets) out = out.replaceAll(secret, '[secret]');
  for (const [pattern, replacement] of PATTERNS) out = out.replace(pattern, replacement);
  return out;
}

export interface LogOptions {
  level: LogLevel;
  /** Default: standard error. */
  destination?: DestinationStream;
}

export function createLog(options: LogOptions): Log {
  const secrets = new Set<string>();
  const sink = options.destination ?? pino.destination({ fd: 2, sync: true });
  const masked: DestinationStream = { write: (line) => sink.write(redact(line, secrets)) };
  const logger = pino({ level: options.level, base: undefined, timestamp: pino.stdTimeFunctions.isoTime }, masked);
  return wrap(logger, secrets);
}

/** A log that keeps nothing; for tests and library use. */
export const silentLog: Log = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  child: () => silentLog,
  addSecret: () => undefined,
};

function wrap(logger: Logger, secrets: Set<string>): Log {
  const at = (level: 'debug' | 'info' | 'warn' | 'error') => (event: string, fields?: LogFields) =>
    logger[level](serialise(fields), event);
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: (fields) => wrap(logger.child(serialise(fields)), secrets),
    addSecret: (value) => {
      if (value.length >= 6) secrets.add(value);
    },
  };
}

/** Errors become their message chain: no stacks of requests, no inner objects that carry URLs with tokens. */
function serialise(fields: LogFields | undefined): LogFields {
  const out: LogFields = {};
  for (const [key, value] of Object.entries(fields ?? {})) out[key] = value instanceof Error ? chain(value) : value;
  return out;
}

function chain(error: Error): string {
  const cause = error.cause;
  return cause instanceof Error ? `${error.message}: ${chain(cause)}` : error.message;
}
