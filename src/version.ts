/** The version of this package; a test compares it with package.json. */
export const VERSION = '0.1.0';

/**
 * Whether `version` comes after `other` in the order of semantic versions (semver.org, section 11). What is no version at all comes
 * before everything.
 */
export function isNewerVersion(version: string, other: string): boolean {
  const [a, b] = [parse(version), parse(other)];
  if (!a || !b) return a !== undefined && b === undefined;
  return (compareLists(a.numbers, b.numbers) || comparePre(a.pre, b.pre)) > 0;
}

interface Parsed {
  numbers: string[];
  /** Empty for a release. */
  pre: string[];
}

function parse(version: string): Parsed | undefined {
  const match = /^(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?$/.exec(version);
  return match ? { numbers: match.slice(1, 4), pre: match[4]?.split('.') ?? [] } : undefined;
}

/** A release comes after its candidates. */
function comparePre(a: readonly string[], b: readonly string[]): number {
  if (a.length === 0 || b.length === 0) return b.length - a.length;
  return compareLists(a, b);
}

function compareLists(a: readonly string[], b: readonly string[]): number {
  for (let i = 0; i < Math.min(a.length, b.length); i += 1) {
    const order = comparePart(a[i]!, b[i]!);
    if (order !== 0) return order;
  }
  return a.length - b.length;
}

/** Numbers by their value and before words. */
function comparePart(a: string, b: string): number {
  const [isNumberA, isNumberB] = [/^\d+$/.test(a), /^\d+$/.test(b)];
  if (isNumberA && isNumberB) return Number(a) - Number(b);
  if (isNumberA !== isNumberB) return isNumberA ? -1 : 1;
  return a === b ? 0 : a < b ? -1 : 1;
}
