/** What a checkpoint may be. Free of the database, so that agents may import it. */

/** Of its JSON text, UTF-8 bytes; and how deep lists and objects may lie in each other. */
export const CHECKPOINT_LIMITS = { bytes: 262_144, depth: 100 } as const;

/** A checkpoint that may be kept: its compact JSON text and the length of that in UTF-8. */
export interface CheckpointText {
  json: string;
  bytes: number;
}

/** The text of a value that was parsed from JSON, or in a few words why it is none that may be kept. */
export function checkpointText(data: unknown): CheckpointText | string {
  if (!isShallow(data)) return `is nested deeper than ${CHECKPOINT_LIMITS.depth} levels`;
  const json = JSON.stringify(data);
  const bytes = Buffer.byteLength(json);
  return bytes > CHECKPOINT_LIMITS.bytes ? tooLarge : { json, bytes };
}

const tooLarge = `is larger than ${CHECKPOINT_LIMITS.bytes} bytes`;

/** False also where there is nothing. Level by level: what is made to overflow a stack must not find one here. */
export function isShallow(data: unknown): boolean {
  if (data === undefined) return false;
  let level: unknown[] = [data];
  for (let depth = 0; depth <= CHECKPOINT_LIMITS.depth; depth += 1) {
    const inner = level.filter((value) => typeof value === 'object' && value !== null);
    if (inner.length === 0) return true;
    level = inner.flatMap((value) => Object.values(value as object));
  }
  return false;
}
