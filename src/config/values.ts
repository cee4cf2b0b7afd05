import { AppError } from '../errors.ts';

/** One variable that cannot be used, and why. */
export interface SettingProblem {
  name: string;
  message: string;
}

/** Every problem at once, each naming its variable. */
export class SettingsError extends AppError {
  readonly problems: readonly SettingProblem[];

  constructor(problems: readonly SettingProblem[]) {
    super('invalid_config', problems.map((problem) => `${problem.name}: ${problem.message}`).join('\n'), {
      field: problems[0]?.name,
    });
    this.problems = problems;
  }
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** Levenshtein distance. */
export function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length]!;
}

const DURATION = /^(\d+)(ms|s|m|h|d)$/;
const UNIT_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** `1500ms`, `30s`, `10m`, `1h`, `7d` → milliseconds; undefined for anything else. */
export function durationMs(text: string): number | undefined {
  const match = DURATION.exec(text);
  return match ? Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS] : undefined;
}

const BYTES = /^(\d+)(B|KiB|MiB|GiB)$/;
const UNIT_BYTES = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 } as const;

/** `512B`, `64KiB`, `512MiB`, `2GiB` → bytes; undefined for anything else. */
export function byteCount(text: string): number | undefined {
  const match = BYTES.exec(text);
  return match ? Number(match[1]) * UNIT_BYTES[match[2] as keyof typeof UNIT_BYTES] : undefined;
}
