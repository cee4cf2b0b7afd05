import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, rm, stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { AppError } from '../../../errors.ts';
import type { ReleaseOffer } from '../../protocol.ts';
import { CallFailed, type GatewayClient } from '../client.ts';

/** A larger package is not loaded. */
export const MAX_PACKAGE_BYTES = 512 * 1024 ** 2;
/** Room for the package and what it unpacks to, and so much that stays free. */
const UNPACKED_FACTOR = 5;
const SPARE_BYTES = 64 * 1024 ** 2;

/**
 * Loads a package into a file, going on where an earlier call was cut off, and checks its digest.
 * @throws CallFailed of the gateway or the way to it; AppError storage_full; AppError invalid_request where the content is not what was
 * promised (the file is gone then)
 */
export async function download(
  client: GatewayClient,
  offer: ReleaseOffer,
  path: string,
  signal: AbortSignal,
): Promise<void> {
  if (offer.bytes > MAX_PACKAGE_BYTES)
    throw new AppError('invalid_request', `the package is larger than ${MAX_PACKAGE_BYTES} bytes`);
  let from = await sizeOf(path);
  if (from > offer.bytes) {
    await rm(path, { force: true });
    from = 0;
  }
  await checkSpace(dirname(path), offer.bytes * UNPACKED_FACTOR - from + SPARE_BYTES);
  if (from < offer.bytes) await fetchRest(client, offer, { path, from, signal });
  if ((await digestOf(path)) === offer.sha256) return;
  await rm(path, { force: true });
  throw new AppError('invalid_request', 'the package does not have the sha256 that was promised');
}

/** @throws AppError storage_full */
export async function checkSpace(dir: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(dir);
  if (bavail * bsize < bytes) {
    const mib = (value: number) => `${Math.ceil(value / 1024 ** 2)} MiB`;
    throw new AppError('storage_full', `${mib(bytes)} are needed in ${dir} and ${mib(bavail * bsize)} are free`);
  }
}

/** Of a file, 64 hexadecimal digits. */
export async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

interface Rest {
  path: string;
  from: number;
  signal: AbortSignal;
}

async function fetchRest(client: GatewayClient, offer: ReleaseOffer, { path, from, signal }: Rest): Promise<void> {
  const { status, body } = await client.stream(`/api/agent/releases/${offer.version}`, { from, signal });
  // Anything but a part is the whole.
  let at = status === 206 ? from : 0;
  const file = await open(path, at > 0 ? 'a' : 'w', 0o600);
  try {
    for await (const chunk of body) {
      at += (chunk as Buffer).length;
      if (at > offer.bytes) throw new AppError('invalid_request', 'the package is larger than was promised');
      await file.writeFile(chunk as Buffer);
    }
    await file.datasync();
  } catch (error) {
    if (signal.aborted || error instanceof AppError || (error as NodeJS.ErrnoException).syscall === 'write')
      throw error;
    throw new CallFailed('unreachable', `the download of ${offer.version} was cut off at byte ${at}`, 'again', {
      cause: error,
    });
  } finally {
    await file.close();
  }
  if (at < offer.bytes)
    throw new CallFailed('unreachable', `the download of ${offer.version} ended at byte ${at}`, 'again');
}

async function sizeOf(path: string): Promise<number> {
  return stat(path).then(
    ({ size }) => size,
    () => 0,
  );
}
