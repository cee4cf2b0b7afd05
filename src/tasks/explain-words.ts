import { duration } from '../text.ts';
import type { LinePlace, Words } from './explain-facts.ts';

/** Pieces of the sentences that explain a task: both languages side by side, pure. */

export function both(en: string, zh: string): Words {
  return { en, zh };
}

/** `2 min 5 s`, `2 分 5 秒`. */
export function lasting(ms: number): Words {
  const whole = Math.max(0, ms);
  return both(duration('en', whole), duration('zh', whole));
}

/** `in 25 s`, `25 秒后`; `now`, `马上` for what is due. */
export function inTime(ms: number): Words {
  if (ms <= 0) return both('now', '马上');
  const time = lasting(ms);
  return both(`in ${time.en}`, `${time.zh}后`);
}

/** One text behind the other; undefined where there is none. */
export function joined(first: Words | undefined, second: Words | undefined): Words | undefined {
  if (!first || !second) return first ?? second;
  return both(`${first.en} ${second.en}`, first.zh + second.zh);
}

/** `pool default` or `machine printer-pc`. */
export function placeName(place: string): Words {
  return place.startsWith('@')
    ? both(`machine ${place.slice(1)}`, `机器 ${place.slice(1)}`)
    : both(`pool ${place}`, `机器池 ${place}`);
}

/** `Pool default`: at the beginning of a sentence. */
export function capital({ en, zh }: Words): Words {
  return both(en.charAt(0).toUpperCase() + en.slice(1), zh);
}

/** ` after 3 tries`, `（已尝试 3 次）`; nothing for the first. */
export function afterTries(attempt: number): Words {
  return attempt < 2 ? both('', '') : both(` after ${attempt} tries`, `（已尝试 ${attempt} 次）`);
}

/** `, in the last of 3 tries`, `（最后一次，共 3 次）`; nothing where there was one. */
export function lastTry(attempt: number): Words {
  return attempt < 2 ? both('', '') : both(`, in the last of ${attempt} tries`, `（最后一次，共 ${attempt} 次）`);
}

/** `: what the program said`, or nothing. */
export function quoted(said: string): Words {
  return said === '' ? both('', '') : both(`: ${said}`, `：${said}`);
}

/** Ends a sentence that may have ended already: programs write full stops too. */
export function ended({ en, zh }: Words): Words {
  return both(/[.!?…。！？]$/u.test(en) ? en : `${en}.`, /[.!?…。！？]$/u.test(zh) ? zh : `${zh}。`);
}

/** `about 3rd of 12 in line`. */
export function lineWords({ position, total, isMore }: LinePlace): Words {
  const all = isMore ? both(`more than ${total}`, `${total} 多`) : both(`${total}`, `${total} `);
  if (position === null) return both(`far back in a line of ${all.en}`, `排在队伍后部，共 ${all.zh}个`);
  return both(`about ${ordinal(position)} of ${all.en} in line`, `大约排在第 ${position} 位，共 ${all.zh}个`);
}

function ordinal(n: number): string {
  const tens = n % 100;
  if (tens >= 11 && tens <= 13) return `${n}th`;
  return `${n}${['th', 'st', 'nd', 'rd'][n % 10] ?? 'th'}`;
}
