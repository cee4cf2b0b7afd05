import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { compiledSrc } from '../support/compiled.ts';

export interface Ended {
  /** Null where a signal ended it. */
  code: number | null;
  out: string;
  err: string;
}

export interface Place {
  cwd: string;
  env?: Record<string, string>;
}

/** Starts `errand <args>` as a process of its own, with nothing of this process's environment but the path. */
export async function startErrand(
  args: readonly string[],
  { cwd, env = {} }: Place,
): Promise<{ child: ChildProcess; ended: Promise<Ended>; seen(): string }> {
  const main = join(await compiledSrc(), 'cli', 'main.js');
  const child = spawn(process.execPath, [main, ...args], {
    cwd,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: process.env.PATH, HOME: cwd, TZ: 'UTC', ...env },
  });
  const texts = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    texts.out += chunk;
  });
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    texts.err += chunk;
  });
  const ended = new Promise<Ended>((resolve) => child.once('close', (code) => resolve({ code, ...texts })));
  return { child, ended, seen: () => texts.out + texts.err };
}

export async function errand(args: readonly string[], place: Place): Promise<Ended> {
  return (await startErrand(args, place)).ended;
}
