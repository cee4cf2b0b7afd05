import { z } from 'zod';
import { UPGRADE_STATES } from '../agents/protocol.ts';
import type { AgentView } from '../agents/registry.ts';
import { epochMs } from './routes/shapes.ts';

/** An agent as people see it. */
export const agentSchema = z.object({
  agentId: z.string(),
  online: z.boolean(),
  lastSeenAt: epochMs,
  version: z.string(),
  host: z.string(),
  pools: z.array(z.string()),
  labels: z.record(z.string(), z.string()),
  runtimes: z.array(z.string()),
  concurrency: z.number().int(),
  load: z.number().nullable().describe('one-minute load average for each core'),
  activeRuns: z.number().int(),
  cores: z.number().int().optional(),
  freeMemory: z.number().optional().describe('share of the memory, 0 to 1'),
  draining: z
    .object({ at: epochMs, by: z.string(), why: z.string().optional() })
    .optional()
    .describe('it finishes what it runs and takes nothing new'),
  overloaded: z.enum(['load', 'memory']).optional().describe('it is given nothing new until that has fallen'),
  deadReports: z
    .object({ count: z.number().int(), reason: z.string().optional() })
    .optional()
    .describe('reports that the gateway has rejected for good; they wait on the disk of the agent'),
  upgrade: z
    .object({
      version: z.string(),
      state: z.enum(UPGRADE_STATES),
      tries: z.number().int(),
      reason: z.string().optional(),
    })
    .optional()
    .describe('how it gets on with the current release, where it does not run it'),
});
export type AgentShown = z.infer<typeof agentSchema>;

export function agentShown({ standing: { drain, shortage, machine }, ...agent }: AgentView): AgentShown {
  return {
    ...agent,
    // The word of this moment; what the row has is as old as its last sweep.
    ...(machine && { load: machine.load }),
    ...(machine?.cores != null && { cores: machine.cores }),
    ...(machine?.freeMemory != null && { freeMemory: machine.freeMemory }),
    ...(drain && { draining: { at: drain.at, by: drain.by, ...(drain.why === null ? {} : { why: drain.why }) } }),
    ...(shortage && { overloaded: shortage }),
  };
}
