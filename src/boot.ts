import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

/** Names this boot of the machine; process ids mean nothing on another one. At most 64 characters; `unknown` where nobody says. */
export async function currentBootId(): Promise<string> {
  const text = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => undefined);
  if (text !== undefined) return text.trim();
  const answer = await promisify(execFile)('sysctl', ['-n', 'kern.boottime']).catch(() => undefined);
  const seconds = answer && /sec = (\d+)/.exec(answer.stdout)?.[1];
  return seconds ? `boot-${seconds}` : 'unknown';
}
