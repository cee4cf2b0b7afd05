import { readFileSync } from 'node:fs';

/** One envelope of test/fixtures/wecom/vectors.json (sources are named there). */
export interface Vector {
  readonly id: string;
  readonly kind: 'url_verify' | 'message' | 'encrypt_known_answer';
  readonly format: string;
  readonly corpid?: string;
  readonly token: string;
  readonly encodingAESKey: string;
  readonly msg_signature?: string;
  readonly timestamp: string;
  readonly nonce: string;
  readonly encrypt: string;
  readonly random?: string;
  readonly message?: string;
  readonly rawQuery?: string;
  readonly rawBody?: string;
  readonly verified: { readonly decryptedId: string; readonly decryptedRandomHex: string; readonly message: string };
}

const file = new URL('../../fixtures/wecom/vectors.json', import.meta.url);
const content = JSON.parse(readFileSync(file, 'utf8')) as { positive: Vector[]; negative: Vector[] };

export const vectors: readonly Vector[] = content.positive;
const negatives: readonly Vector[] = content.negative;

export function vector(id: string): Vector {
  const found = [...vectors, ...negatives].find((item) => item.id === id);
  if (!found) throw new Error(`no vector ${id}`);
  return found;
}

export function queryOf(item: Vector): Record<string, string> {
  return { msg_signature: item.msg_signature!, timestamp: item.timestamp, nonce: item.nonce };
}
