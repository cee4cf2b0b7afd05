import { distance } from '../config/values.ts';

/** The known name a person most likely meant, or undefined where nothing is near enough. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  if (name.length > MAX_CHARS) return undefined;
  const best = known
    .map((candidate) => ({ candidate, far: distance(name, candidate) }))
    .sort((a, b) => a.far - b.far)[0];
  return best && best.far <= Math.max(2, name.length / 4) && best.far < name.length ? best.candidate : undefined;
}

/** The cost grows with the length, and the name may come from anybody. */
const MAX_CHARS = 64;
