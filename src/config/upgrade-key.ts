import { createPublicKey, type KeyObject } from 'node:crypto';

/** What comes before the 32 bytes of an Ed25519 key in DER (RFC 8410). */
const SPKI_HEAD = Buffer.from('302a300506032b6570032100', 'hex');

/**
 * Reads a public Ed25519 key: PEM, the base64 between its first and last line, or the base64 of the 32 bytes themselves.
 * Undefined for anything else.
 */
export function readUpgradeKey(text: string): KeyObject | undefined {
  const base64 = text.replace(/-----(BEGIN|END) PUBLIC KEY-----|\\n|\s/g, '');
  if (!/^[A-Za-z0-9+/_-]+={0,2}$/.test(base64)) return undefined;
  const bytes = Buffer.from(base64, 'base64');
  const der = bytes.length === 32 ? Buffer.concat([SPKI_HEAD, bytes]) : bytes;
  try {
    const key = createPublicKey({ key: der, format: 'der', type: 'spki' });
    return key.asymmetricKeyType === 'ed25519' ? key : undefined;
  } catch {
    return undefined;
  }
}
