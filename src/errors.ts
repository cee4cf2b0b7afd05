/**
 * Every error code Errand answers with: HTTP status, CLI exit code and what it means. `docs/errors.md` is checked against this table.
 * Exit codes: 1 failed, 2 usage or configuration, 3 not found, 4 refused or conflict, 5 gateway unreachable.
 */
export const ERROR_CODES = {
  invalid_request: { status: 400, exit: 2, title: 'The request is malformed; the message names the field.' },
  invalid_config: { status: 400, exit: 2, title: 'A setting or a file of the configuration is wrong.' },
  unauthorized: { status: 401, exit: 4, title: 'No valid credential was presented.' },
  forbidden: { status: 403, exit: 4, title: 'The credential does not allow this.' },
  not_found: { status: 404, exit: 3, title: 'There is no such thing, or it is not yours to see.' },
  conflict: { status: 409, exit: 4, title: 'The state does not allow this, or it changed meanwhile.' },
  idempotency_conflict: { status: 409, exit: 4, title: 'The idempotency key was used before with another payload.' },
  session_replaced: { status: 409, exit: 4, title: 'A newer instance of this agent has registered.' },
  store_locked: { status: 409, exit: 4, title: 'Another gateway has this database open.' },
  too_large: { status: 413, exit: 2, title: 'The body is larger than the limit.' },
  rate_limited: { status: 429, exit: 1, title: 'Too many requests; try again later.' },
  internal: { status: 500, exit: 1, title: 'A fault of ours; the log has the details under the given id.' },
  unavailable: { status: 503, exit: 1, title: 'Not available right now; try again.' },
  storage_full: { status: 507, exit: 1, title: 'The disk is full: nothing was stored. Free space and try again.' },
  unreachable: { status: 502, exit: 5, title: 'The gateway cannot be reached.' },
} as const;

export type ErrorCode = keyof typeof ERROR_CODES;

/** An expected failure that reaches a caller. Its message is shown to people and must hold no secret. */
export class AppError extends Error {
  readonly code: ErrorCode;
  /** The field or place that is wrong, for example `args.room` or `ERRAND_PORT`. */
  readonly field: string | undefined;
  /** When it is worth trying again, milliseconds from now. */
  readonly retryAfterMs: number | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    options: { field?: string; cause?: unknown; retryAfterMs?: number } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'AppError';
    this.code = code;
    this.field = options.field;
    this.retryAfterMs = options.retryAfterMs;
  }

  get status(): number {
    return ERROR_CODES[this.code].status;
  }

  get exitCode(): number {
    return ERROR_CODES[this.code].exit;
  }
}

/** The message of anything that was thrown, without its stack. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
