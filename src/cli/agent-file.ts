import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { lstat, mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { parseEnv } from 'node:util';
import { replaceFile } from '../agents/worker/records.ts';
import { AppError } from '../errors.ts';

/** The settings file of one agent, an env file that its owner may edit. */
export interface AgentFile {
  readonly text: string;
  readonly values: Readonly<Record<string, string | undefined>>;
}

/** Undefined where there is none. @throws AppError invalid_config where it cannot be read */
export function readAgentFile(path: string): AgentFile | undefined {
  try {
    const text = readFileSync(path, 'utf8');
    return { text, values: parseEnv(text) };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return undefined;
    throw new AppError('invalid_config', `${path} cannot be read (${code ?? 'unknown'})`, { cause: error });
  }
}

/**
 * The text of an env file with these values in it. Everything else of it stays as its owner wrote it.
 * @throws AppError invalid_config where the file could not hold a value
 */
export function withValues(before: string, values: Readonly<Record<string, string>>): string {
  const left = new Map(Object.entries(values));
  const lines = before.split('\n').flatMap((line) => {
    const name = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=/.exec(line)?.[1] ?? '';
    if (!Object.hasOwn(values, name)) return [line];
    const value = left.get(name);
    return value !== undefined && left.delete(name) ? [`${name}=${quoted(value)}`] : [];
  });
  while (lines.at(-1) === '') lines.pop();
  const text = `${[...lines, ...[...left].map(([name, value]) => `${name}=${quoted(value)}`)].join('\n')}\n`;
  const wanted: NodeJS.Dict<string> = { ...parseEnv(before), ...values };
  const read: NodeJS.Dict<string> = parseEnv(text);
  for (const name of Object.keys(wanted))
    if (read[name] !== wanted[name] || /[\u0000-\u001f\u007f]/.test(values[name] ?? ''))
      throw new AppError('invalid_config', `${name}: an env file cannot hold this value; choose another path`, {
        field: name,
      });
  return text;
}

/**
 * Makes the folder, for its owner alone. One that is there is taken as it is, unless others may write into it.
 * @throws AppError forbidden, invalid_config
 */
export async function makePrivateFolder(dir: string): Promise<void> {
  try {
    await mkdir(dir, { recursive: true, mode: 0o700 });
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown';
    throw new AppError('invalid_config', `the folder ${dir} cannot be made (${code})`, {
      field: '--dir',
      cause: error,
    });
  }
  const { mode } = await lstat(dir);
  if (process.platform !== 'win32' && (mode & 0o022) !== 0) {
    throw new AppError('forbidden', `others may write into ${dir}: chmod 700 it, or choose another folder`, {
      field: '--dir',
    });
  }
}

/** In one step, mode 0600, on the disk when this resolves. @throws AppError invalid_config */
export async function writePrivately(path: string, text: string): Promise<void> {
  try {
    await replaceFile(path, text);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown';
    throw new AppError('invalid_config', `${path} cannot be written (${code})`, { cause: error });
  }
}

/** What this machine proves itself with when it has to ask for the same credential again; kept until `forget`. */
export async function joinKey(dir: string): Promise<{ key: string; forget(): Promise<void> }> {
  const path = join(dir, 'join-key');
  const forget = () => rm(path, { force: true });
  const known = (await readFile(path, 'utf8').catch(() => '')).trim();
  if (/^[A-Za-z0-9_-]{32,128}$/.test(known)) return { key: known, forget };
  const key = randomBytes(24).toString('base64url');
  await writePrivately(path, `${key}\n`);
  return { key, forget };
}

function quoted(value: string): string {
  if (/^[A-Za-z0-9_.,:/@%+=~-]*$/.test(value)) return value;
  return value.includes("'") ? `"${value}"` : `'${value}'`;
}
