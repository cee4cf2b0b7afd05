import { AppError, ERROR_CODES, type ErrorCode, messageOf } from '../errors.ts';
import { randomCode } from '../ids.ts';
import type { Log } from '../log.ts';

/** RFC 9457 problem details with a stable `code` from the table in errors.ts. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  code: ErrorCode;
  detail: string;
  field?: string;
}

export function problemOf(error: AppError): Problem {
  const { status, title } = ERROR_CODES[error.code];
  return {
    type: `urn:errand:error:${error.code}`,
    title,
    status,
    code: error.code,
    detail: error.message,
    ...(error.field === undefined ? {} : { field: error.field }),
  };
}

/** Headers that go with a problem: when it is worth trying again, seconds. */
export function problemHeaders(error: AppError): Record<string, string> {
  const type = { 'content-type': 'application/problem+json' };
  const waitMs = error.retryAfterMs ?? (error.code === 'unavailable' ? 1_000 : undefined);
  return waitMs === undefined ? type : { ...type, 'retry-after': String(Math.max(1, Math.ceil(waitMs / 1_000))) };
}

/** Any thrown thing as an AppError; what is not expected is logged under an id and told without its text. */
export function toAppError(error: unknown, log: Log): AppError {
  if (error instanceof AppError) {
    if (error.code === 'internal') log.error('http.internal', { error });
    return error;
  }
  const id = randomCode(8);
  log.error('http.internal', {
    id,
    error: error instanceof Error ? error : messageOf(error),
    stack: error instanceof Error ? error.stack : undefined,
  });
  return new AppError('internal', `something went wrong here; the log has it under ${id}`);
}
