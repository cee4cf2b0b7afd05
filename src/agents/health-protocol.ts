import { z } from 'zod';
import { isShallow } from '../tasks/checkpoint-words.ts';
import { AGENT_ID } from './protocol.ts';

/** The part of agent protocol v1 that is about the health of the agent itself. */

/** The self-checks of an agent (docs/agents.md). */
export const SELF_CHECKS = ['descriptors', 'event_loop', 'spool', 'disk', 'children'] as const;
export type SelfCheckName = (typeof SELF_CHECKS)[number];

/** Largest diagnostic bundle, characters of its JSON. */
export const MAX_BUNDLE = 32_768;

/** What an agent posts when a self-check of it fails: no secrets, no values of its environment, no arguments of programs. */
export const diagnosticsRequestSchema = z.strictObject({
  agentId: z.string().regex(AGENT_ID, 'must be 1 to 64 letters, digits, dots, dashes or underscores'),
  instanceId: z.string().min(1).max(128),
  failed: z.array(z.enum(SELF_CHECKS)).min(1).max(SELF_CHECKS.length),
  bundle: z
    .record(z.string().max(64), z.unknown())
    .refine(
      (value) => isShallow(value) && JSON.stringify(value).length <= MAX_BUNDLE,
      `must be at most ${MAX_BUNDLE} characters of JSON`,
    ),
});
export type DiagnosticsRequest = z.infer<typeof diagnosticsRequestSchema>;
