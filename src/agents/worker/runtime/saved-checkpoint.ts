import { CHECKPOINT_LIMITS, checkpointText } from '../../protocol.ts';
import type { Masking } from '../masking.ts';

/** What a program has saved. */
export interface ReadCheckpoint {
  data: unknown;
  /** Its compact text. */
  json: string;
}

/** A checkpoint from the bytes of its file, or in a few words why it is none. */
export function readCheckpoint(bytes: Buffer, masking: Masking): ReadCheckpoint | string {
  if (bytes.length > CHECKPOINT_LIMITS.bytes) return `is larger than ${CHECKPOINT_LIMITS.bytes} bytes`;
  let data: unknown;
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    data = JSON.parse(text);
  } catch {
    return 'is not JSON (or not written to its end)';
  }
  const rounded = roundedNumber(text);
  if (rounded !== undefined) return `has the number ${rounded}, which would lose digits (write it as a text)`;
  const found = checkpointText(data);
  if (typeof found === 'string') return found;
  // A mask may be longer than what it hides.
  if (Buffer.byteLength(masking.text(found.json)) > CHECKPOINT_LIMITS.bytes)
    return `is larger than ${CHECKPOINT_LIMITS.bytes} bytes`;
  return { data, json: found.json };
}

/** The first whole number that would not come back as it was written: ids of other systems have up to twenty digits. */
function roundedNumber(text: string): string | undefined {
  const outside = text.replace(/"[^"\\]*(?:\\.[^"\\]*)*"/g, '""');
  const long = outside.match(/(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g) ?? [];
  return long.find((digits) => JSON.stringify(Number(digits)) !== digits)?.slice(0, 40);
}
