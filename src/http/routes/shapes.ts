import { z } from 'zod';
import { AppError } from '../../errors.ts';
import type { IdCodec } from '../../ids.ts';

/** Schemas and small steps that the routes share. */

/** Who asked, in events and audit entries: every route but the chat's has the administrator's token. */
export const ACTOR = 'api:admin';

export const epochMs = z.number().int().describe('epoch milliseconds');
export const publicId = z.string().describe('an id: 4 to 10 letters and digits');
export const idParams = z.object({ id: z.string().min(1).max(64) });

/** Larger pages are refused. */
export const MAX_PAGE = 200;
/** The part of a query that every list has. */
export const pageQuery = {
  limit: z.coerce.number().int().min(1).max(MAX_PAGE).default(50),
  cursor: z.string().min(1).max(32).optional().describe('`next` of the page before'),
};

/** RFC 9457; `code` is one of docs/errors.md. */
const problem = z
  .object({
    type: z.string(),
    title: z.string(),
    status: z.number(),
    code: z.string(),
    detail: z.string(),
    field: z.string().optional(),
  })
  .describe('a problem (RFC 9457)');

const problemAnswer = (description: string) => ({
  description,
  content: { 'application/problem+json': { schema: problem } },
});

/** What a route may refuse with, for the document; the server's error door writes them. */
export const refusals = {
  400: problemAnswer('The request is malformed; `field` names what is wrong.'),
  401: problemAnswer('No valid credential was presented.'),
};
export const refusalsWithId = { ...refusals, 404: problemAnswer('There is no such thing.') };
export const refusalsOfChange = { ...refusalsWithId, 409: problemAnswer('The state does not allow this.') };

/** @throws AppError not_found where the text is no id */
export function idOf(ids: IdCodec, text: string, what: string): number {
  const id = ids.decode(text);
  if (id === undefined) throw notFound(what, text);
  return id;
}

export function notFound(what: string, text: string): AppError {
  return new AppError('not_found', `there is no ${what} ${JSON.stringify(text)}`);
}

/** Ids that narrow a list. @throws AppError invalid_request naming the field */
export function filterId(ids: IdCodec, text: string | undefined, field: string): number | undefined {
  if (text === undefined) return undefined;
  const id = ids.decode(text);
  if (id === undefined)
    throw new AppError('invalid_request', `${field}: ${JSON.stringify(text)} is not an id`, { field });
  return id;
}

/** Cuts a list that was read one longer than asked for; `next` is there when there is more. */
export function pageOf<T>(
  items: readonly T[],
  limit: number,
  idText: (item: T) => string,
): { items: T[]; next?: string } {
  if (items.length <= limit) return { items: [...items] };
  const page = items.slice(0, limit);
  return { items: page, next: idText(page.at(-1)!) };
}

export const nextCursor = z.string().optional().describe('`cursor` of the next page; absent on the last');
