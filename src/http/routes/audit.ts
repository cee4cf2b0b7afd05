import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import type { IdCodec } from '../../ids.ts';
import type { Rooms } from '../rooms.ts';
import { auditEntries } from './queries.ts';
import { epochMs, filterId, nextCursor, pageOf, pageQuery, publicId, refusals } from './shapes.ts';

const entrySchema = z.object({
  id: publicId,
  at: epochMs,
  actor: z.string(),
  action: z.string(),
  target: z.string(),
  data: z.record(z.string(), z.unknown()).optional(),
});

/** Rows name tasks by their row; people know them by their public id. */
const publicTarget = (target: string, ids: IdCodec) =>
  target.replace(/^(task|flow)#(\d{1,15})$/, (_match, kind: string, id: string) => `${kind}/${ids.encode(Number(id))}`);

/** Who changed what. */
export const auditRoutes =
  ({ store }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    app.get('/api/audit', {
      schema: {
        tags: ['audit'],
        summary: 'Who changed what, the newest first',
        querystring: z.strictObject(pageQuery),
        response: { 200: z.object({ entries: z.array(entrySchema), next: nextCursor }), ...refusals },
      },
      handler: async ({ query: { cursor, limit } }) => {
        const rows = await auditEntries(store, filterId(store.ids, cursor, 'cursor'), limit + 1);
        const entries = rows.map(({ data, ...row }) => ({
          ...row,
          id: store.ids.encode(row.id),
          target: publicTarget(row.target, store.ids),
          data: data === null ? undefined : (JSON.parse(data) as Record<string, unknown>),
        }));
        const { items, next } = pageOf(entries, limit, (entry) => entry.id);
        return { entries: items, next };
      },
    });
  };
