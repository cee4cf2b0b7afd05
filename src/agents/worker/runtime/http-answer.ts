import type { Dispatcher } from 'undici';
import { withoutNul } from './capture.ts';
import type { Job } from './runtime.ts';

/** The readable part of an answer. */
export interface ReadAnswer {
  /** Valid text without NUL, secrets masked. */
  text: string;
  /** Whether there was more than may be read. */
  isCut: boolean;
}

/** Reads at most `maxBytes` of the body and lets go of the rest. @throws what the connection says, the reason of `job.signal` */
export async function readAnswer(answer: Dispatcher.ResponseData, maxBytes: number, job: Job): Promise<ReadAnswer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of answer.body as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    bytes += chunk.length;
    // Leaving the loop ends the connection.
    if (bytes > maxBytes) break;
  }
  const body = Buffer.concat(chunks).subarray(0, maxBytes);
  const encoding = answer.headers['content-encoding'];
  if (typeof encoding === 'string' && encoding.toLowerCase() !== 'identity') {
    // It was asked for plain; unpacking what a stranger sends can fill any memory.
    return { text: `[${bytes} bytes, packed as ${encoding.slice(0, 32)}]`, isCut: bytes > maxBytes };
  }
  return { text: job.masking.text(decoded(body, answer.headers['content-type'])), isCut: bytes > maxBytes };
}

function decoded(body: Buffer, contentType: string | string[] | undefined): string {
  const charset = /charset="?([\w.:-]{1,40})/i.exec(String(contentType ?? ''))?.[1] ?? 'utf-8';
  return withoutNul(decoderFor(charset).decode(body).toWellFormed());
}

function decoderFor(charset: string) {
  try {
    return new TextDecoder(charset);
  } catch {
    return new TextDecoder();
  }
}
