import { CommanderError } from 'commander';
import { AppError, messageOf } from '../errors.ts';
import { problemOf } from '../http/problem.ts';
import type { Io } from './context.ts';
import { printable } from './table.ts';

/**
 * Says on standard error what went wrong and answers the exit code of docs/cli.md: one line `errand: …` per problem, or the problem
 * JSON on one line.
 */
export function reportFailure(io: Pick<Io, 'err'>, error: unknown, json: boolean): number {
  const failure = toFailure(error);
  if (failure === undefined) return 0;
  const lines = printable(failure.message).split('\n');
  if (json) io.err(`${JSON.stringify(problemOf(failure))}\n`);
  else for (const line of lines) io.err(`errand: ${line}\n`);
  return failure.exitCode;
}

/** Undefined: help or the version was asked for and shown. */
function toFailure(error: unknown): AppError | undefined {
  if (error instanceof AppError) return error;
  if (error instanceof CommanderError) {
    if (error.exitCode === 0) return undefined;
    return new AppError(
      'invalid_request',
      `${error.message.replace(/^error: /, '').replace(/\n\(?(.*?)\)?$/s, '; $1')} (see --help)`,
    );
  }
  return new AppError('internal', messageOf(error));
}
