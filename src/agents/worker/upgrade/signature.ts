import { type KeyObject, sign, verify } from 'node:crypto';

/** What a signature covers: the version too, so that an old package cannot be offered again under a newer name. */
function signedText({ version, sha256 }: { version: string; sha256: string }): Buffer {
  return Buffer.from(`errand-release-v1\n${version}\n${sha256}\n`);
}

/** The signature of a package by the owner's private Ed25519 key, base64. */
export function signRelease(release: { version: string; sha256: string }, key: KeyObject): string {
  return sign(null, signedText(release), key).toString('base64');
}

/** Whether the owner's key has signed this version with this content. */
export function isSignedBy(
  release: { version: string; sha256: string; signature: string | null },
  key: KeyObject,
): boolean {
  return release.signature !== null && verify(null, signedText(release), key, Buffer.from(release.signature, 'base64'));
}
