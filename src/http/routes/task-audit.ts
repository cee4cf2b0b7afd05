import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { setting } from '../../config/settings.ts';
import type { IdCodec } from '../../ids.ts';
import { STALE_MS } from '../../retention/audit.ts';
import { FINDING_CODES, type Finding } from '../../retention/findings.ts';
import type { Rooms } from '../rooms.ts';
import { ACTOR, epochMs, publicId, refusals } from './shapes.ts';

const findingSchema = z.object({
  code: z.enum(FINDING_CODES),
  kind: z.enum(['task', 'run', 'flow', 'message', 'effect']),
  id: publicId,
  taskId: publicId.optional(),
  since: epochMs.optional(),
  problem: z.string(),
  fixable: z.boolean(),
  advice: z.string(),
});

const more = z.boolean().describe('a code has more findings than are listed');
const staleQuery = z.strictObject({
  stale: setting
    .duration()
    .refine((ms) => ms >= 1_000 && ms <= 30 * 86_400_000, 'must be between 1s and 30d')
    .default(STALE_MS)
    .describe('how long something must have been due to count as stuck'),
});

/** What the engine should never leave behind: looking for it, and putting it right. */
export const taskAuditRoutes =
  ({ store, taskAudit }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['tasks'];
    app.get('/api/tasks/audit', {
      schema: {
        tags,
        summary: 'Look for tasks, flows, effects and messages that are stuck or inconsistent; changes nothing',
        querystring: staleQuery,
        response: { 200: z.object({ findings: z.array(findingSchema), more }), ...refusals },
      },
      handler: async ({ query }) => {
        const report = await taskAudit.find(query.stale);
        return { findings: report.findings.map((finding) => shown(finding, store.ids)), more: report.more };
      },
    });
    app.post('/api/tasks/audit/fix', {
      schema: {
        tags,
        summary: 'Fix what the audit finds, where that needs no person; each fix is in the audit log',
        querystring: staleQuery,
        response: {
          200: z.object({
            fixed: z.array(findingSchema.extend({ did: z.string() })),
            left: z.array(findingSchema),
            more,
          }),
          ...refusals,
        },
      },
      handler: async ({ query }) => {
        const report = await taskAudit.fix(ACTOR, query.stale);
        return {
          fixed: report.fixed.map((finding) => ({ ...shown(finding, store.ids), did: finding.did })),
          left: report.left.map((finding) => shown(finding, store.ids)),
          more: report.more,
        };
      },
    });
  };

function shown({ code, kind, id, taskId, since, problem, fix, advice }: Finding, ids: IdCodec) {
  return {
    code,
    kind,
    id: ids.encode(id),
    taskId: taskId === null ? undefined : ids.encode(taskId),
    since: since ?? undefined,
    problem,
    fixable: fix !== null,
    advice,
  };
}
