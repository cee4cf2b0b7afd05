import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import type { Template } from '../../flows/template-model.ts';
import { ROLES } from '../../sessions/rights.ts';
import { NOTIFY_POLICIES, PRIORITIES } from '../../tasks/states.ts';
import type { Rooms } from '../rooms.ts';
import { refusals } from './shapes.ts';

const argSchema = z.object({
  type: z.string(),
  required: z.boolean(),
  default: z.union([z.string(), z.number(), z.boolean()]).optional(),
  pattern: z.string().optional(),
  min: z.union([z.number(), z.string()]).optional(),
  max: z.union([z.number(), z.string()]).optional(),
  values: z.array(z.string()).optional(),
});

const templateSchema = z.object({
  id: z.string(),
  title: z.object({ en: z.string(), zh: z.string() }),
  triggers: z.array(z.string()),
  args: z.record(z.string(), argSchema),
  runtime: z.string(),
  pool: z.string(),
  agent: z.string().nullable(),
  labels: z.record(z.string(), z.string()).nullable(),
  priority: z.enum(PRIORITIES),
  timeoutMs: z.number(),
  ttlMs: z.number().nullable(),
  breaker: z.string().nullable().describe('name of its circuit breaker'),
  notify: z.enum(NOTIFY_POLICIES).nullable(),
  roles: z.array(z.enum(ROLES)),
  secrets: z.array(z.string()).describe('names; the values live on the agents'),
  digest: z.string(),
  runDigest: z.string().describe('of what an agent does for it; what AGENT_ALLOW pins'),
});

const problemSchema = z.object({
  file: z.string(),
  line: z.number().int(),
  column: z.number().int(),
  field: z.string(),
  message: z.string(),
});

/** The templates that are loaded, and what is wrong with the files that are not. */
export const templateRoutes =
  ({ templates }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    app.get('/api/templates', {
      schema: {
        tags: ['templates'],
        summary: 'Templates, and the problems of their files',
        response: {
          200: z.object({ templates: z.array(templateSchema), problems: z.array(problemSchema) }),
          ...refusals,
        },
      },
      handler: async () => ({ templates: templates.list().map(templateOf), problems: [...templates.problems()] }),
    });
  };

/** The lists of a template are frozen; the schema's are not. */
function templateOf(template: Template): z.infer<typeof templateSchema> {
  const args = Object.entries(template.args).map(
    ([name, { values, ...spec }]) => [name, { ...spec, values: values && [...values] }] as const,
  );
  const { triggers, roles, secrets } = template;
  return {
    ...template,
    breaker: template.breaker?.name ?? null,
    triggers: [...triggers],
    roles: [...roles],
    secrets: [...secrets],
    args: Object.fromEntries(args),
  };
}
