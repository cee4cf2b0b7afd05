import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseEnv } from 'node:util';
import type { Command } from 'commander';
import { type Environment, SettingsError } from '../config/values.ts';
import { AppError } from '../errors.ts';
import { Api } from './api.ts';

/** What the command line has from outside; handed in, so that `main.ts` alone touches the process. */
export interface Io {
  readonly env: Environment;
  readonly cwd: string;
  /** Writes to standard output; no line end is added. */
  out(text: string): void;
  err(text: string): void;
}

export interface GlobalOptions {
  json?: true;
  url?: string;
  token?: string;
  /** An env file, or false for none; absent: `.env` where there is one. Not called `--env-file`: node takes that for its own. */
  settings?: string | false;
}

/** What an action works with. */
export interface Context {
  readonly io: Io;
  /** The environment with the env file; what is set in the environment wins. */
  readonly env: Environment;
  readonly json: boolean;
  /** The env file that was read; undefined where there is none. */
  readonly settingsFile: string | undefined;
  /** The running gateway. @throws AppError invalid_config where no token is known */
  api(): Api;
  /** Prints the answer: as it is with `--json`, else as `human` says it. */
  show(data: unknown, human: () => string): void;
}

/** Ends in an exit code: a number, or nothing for 0. */
export type Action<A extends unknown[]> = (context: Context, ...args: A) => Promise<number> | Promise<void>;

/** Turns an action into what commander calls; its exit code goes to `done`. */
export type Act = <A extends unknown[]>(action: Action<A>) => (...args: unknown[]) => Promise<void>;

export function actWith(io: Io, done: (exitCode: number) => void): Act {
  return <A extends unknown[]>(action: Action<A>) =>
    async (...all: unknown[]) => {
      const command = all.pop() as Command;
      done((await action(contextOf(io, command.optsWithGlobals<GlobalOptions>()), ...(all as A))) ?? 0);
    };
}

function contextOf(io: Io, options: GlobalOptions): Context {
  const file = envFile(io, options.settings);
  const env = { ...file?.values, ...io.env };
  return {
    io,
    env,
    settingsFile: file?.path,
    json: options.json === true,
    api: () => new Api(connectionOf(env, io.cwd, options)),
    show: (data, human) => io.out(options.json ? `${JSON.stringify(data, null, 2)}\n` : withLineEnd(human())),
  };
}

/** Says one thing to a person; nothing with `--json`. */
export function tell({ io, json }: Pick<Context, 'io' | 'json'>, text: string): void {
  if (!json) io.out(withLineEnd(text));
}

function withLineEnd(text: string): string {
  return text === '' || text.endsWith('\n') ? text : `${text}\n`;
}

function envFile(io: Io, option: GlobalOptions['settings']): { path: string; values: Environment } | undefined {
  if (option === false) return undefined;
  const path = resolve(io.cwd, option ?? '.env');
  try {
    return { path, values: parseEnv(readFileSync(path, 'utf8')) as Environment };
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' && option === undefined) return undefined;
    throw new AppError('invalid_config', `the settings file ${path} cannot be read (${code ?? 'unknown'})`, {
      field: '--settings',
      cause: error,
    });
  }
}

/** Where the gateway is and who asks: options, then the environment, then what a gateway on this machine has left in its state folder. */
function connectionOf(env: Environment, cwd: string, options: GlobalOptions): { url: string; token: string } {
  const set = (name: string) => env[name]?.trim() || undefined;
  const url = options.url ?? set('ERRAND_URL') ?? `http://127.0.0.1:${set('ERRAND_PORT') ?? '8787'}`;
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new SettingsError([
      { name: options.url === undefined ? 'ERRAND_URL' : '--url', message: 'must be an http or https URL' },
    ]);
  }
  const token =
    options.token ??
    set('ERRAND_TOKEN') ??
    set('ERRAND_ADMIN_TOKEN') ??
    localToken(url, resolve(cwd, set('ERRAND_STATE_DIR') ?? './data'));
  return { url: url.replace(/\/+$/, ''), token };
}

/** The file's token is for the gateway on this machine; it is never shown to another one. */
function localToken(url: string, stateDir: string): string {
  const advice = 'give it with --token or ERRAND_TOKEN';
  const { hostname } = new URL(url);
  if (!/^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname))
    throw new AppError('invalid_config', `the admin token of ${hostname} is needed: ${advice}`);
  // Same file as `adminTokenPath` of http/auth.ts, which would load the server into every command.
  const path = join(stateDir, 'admin-token');
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    throw new AppError(
      'invalid_config',
      `no admin token at ${path} (is this the folder where the gateway was started?); ${advice}`,
      { cause: error },
    );
  }
}
