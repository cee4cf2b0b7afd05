import { createDecipheriv } from 'node:crypto';
import { getSignature, encrypt as seal } from '@wecom/crypto';
import { sameSecret } from '../../ids.ts';

/**
 * The envelope of WeCom callbacks (developer.work.weixin.qq.com, documents 90968 and 91144): base64 of AES-256-CBC over
 * 16 random bytes, the length of the message as uint32 big endian, the message, the receiveid; PKCS#7 padded to 32 bytes.
 * The library decrypts without checking anything, so opening is done here, strictly.
 */

/** `text` of the envelope, or the first check that failed. */
type Opened =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly check: 'ciphertext' | 'padding' | 'length' | 'receiveid' | 'encoding' };

/** 43 characters of base64 carry 32 bytes and two spare bits. */
const KEY_SHAPE = /^[A-Za-z0-9]{43}$/;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;
const BLOCK_BYTES = 32;
const RANDOM_BYTES = 16;
const HEAD_BYTES = RANDOM_BYTES + 4;

/** The 32 bytes of an EncodingAESKey, or undefined where it is none. */
export function aesKeyOf(encodingAesKey: string): Buffer | undefined {
  return KEY_SHAPE.test(encodingAesKey) ? Buffer.from(`${encodingAesKey}=`, 'base64') : undefined;
}

/** What WeCom signs: the four texts, sorted and joined, SHA-1 in lower-case hex. Compared in constant time. */
export function signatureMatches(
  token: string,
  signed: {
    readonly signature: string;
    readonly timestamp: string;
    readonly nonce: string;
    readonly encrypted: string;
  },
): boolean {
  return sameSecret(signed.signature, getSignature(token, signed.timestamp, signed.nonce, signed.encrypted));
}

/** Decrypts an envelope whose signature was verified before. Accepts nothing but what WeCom can have written for `receiveId`. */
export function openEnvelope(key: Buffer, encrypted: string, receiveId: string): Opened {
  const padded = decipher(key, encrypted);
  if (!padded) return { ok: false, check: 'ciphertext' };
  const content = withoutPadding(padded);
  if (!content) return { ok: false, check: 'padding' };
  if (content.length < HEAD_BYTES) return { ok: false, check: 'length' };
  const end = HEAD_BYTES + content.readUInt32BE(RANDOM_BYTES);
  if (end > content.length) return { ok: false, check: 'length' };
  if (!content.subarray(end).equals(Buffer.from(receiveId, 'utf8'))) return { ok: false, check: 'receiveid' };
  return decodeText(content.subarray(HEAD_BYTES, end));
}

/** Whether a key that has the right shape also works: seals a text with the library and opens it here. */
export function keyWorks(encodingAesKey: string, receiveId: string): boolean {
  const key = aesKeyOf(encodingAesKey);
  const probe = 'self-test 自检';
  if (!key) return false;
  const opened = openEnvelope(key, seal(encodingAesKey, probe, receiveId), receiveId);
  return opened.ok && opened.text === probe;
}

function decipher(key: Buffer, encrypted: string): Buffer | undefined {
  if (!BASE64.test(encrypted) || encrypted.length % 4 !== 0) return undefined;
  const bytes = Buffer.from(encrypted, 'base64');
  if (bytes.length === 0 || bytes.length % BLOCK_BYTES !== 0) return undefined;
  const cipher = createDecipheriv('aes-256-cbc', key, key.subarray(0, 16)).setAutoPadding(false);
  return Buffer.concat([cipher.update(bytes), cipher.final()]);
}

function withoutPadding(padded: Buffer): Buffer | undefined {
  const count = padded.at(-1)!;
  if (count < 1 || count > BLOCK_BYTES) return undefined;
  const start = padded.length - count;
  return padded.subarray(start).every((byte) => byte === count) ? padded.subarray(0, start) : undefined;
}

function decodeText(bytes: Buffer): Opened {
  try {
    return { ok: true, text: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes) };
  } catch {
    return { ok: false, check: 'encoding' };
  }
}
