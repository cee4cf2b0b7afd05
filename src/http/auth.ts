import { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs';
import type { IncomingHttpHeaders } from 'node:http';
import { join } from 'node:path';
import { AppError } from '../errors.ts';
import { randomToken, sameSecret } from '../ids.ts';

/** The token of an `Authorization: Bearer` header. */
export function bearerOf(headers: IncomingHttpHeaders): string | undefined {
  return /^Bearer ([^\s]+)$/i.exec(headers.authorization ?? '')?.[1];
}

/** Checks the administrator's token; answers are the same for a missing and a wrong one. */
export class AdminAuth {
  readonly #token: string;

  constructor(token: string) {
    this.#token = token;
  }

  /** Constant time. */
  allows(headers: IncomingHttpHeaders): boolean {
    const token = bearerOf(headers);
    return token !== undefined && sameSecret(token, this.#token);
  }

  /** @throws AppError unauthorized */
  check(headers: IncomingHttpHeaders): void {
    if (!this.allows(headers))
      throw new AppError('unauthorized', 'the admin token is needed: Authorization: Bearer <token>');
  }
}

/** Where a generated admin token is kept; the command line reads it there too. */
export const adminTokenPath = (stateDir: string) => join(stateDir, 'admin-token');

/** The configured token, else the one of the state folder, which is made (mode 0600) when it is not there. */
export function adminToken(stateDir: string, configured: string | undefined): string {
  if (configured !== undefined) return configured;
  mkdirSync(stateDir, { recursive: true });
  const path = adminTokenPath(stateDir);
  try {
    const file = openSync(path, 'wx', 0o600);
    writeSync(file, `${randomToken(32)}\n`);
    fsyncSync(file);
    closeSync(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  const token = readFileSync(path, 'utf8').trim();
  if (token.length < 16)
    throw new AppError(
      'invalid_config',
      `${path} holds no token of at least 16 characters; remove the file to get a new one`,
    );
  return token;
}
