import { z } from 'zod';
import { NEED_CONDITIONS } from '../../tasks/needs-graph.ts';
import { ERROR_CLASSES } from '../../tasks/run-words.ts';
import { DELIVERY_STATES, NOTIFY_POLICIES, PRIORITIES, TASK_SOURCES, TASK_STATES } from '../../tasks/states.ts';
import { answeredAsIs } from '../serialize.ts';
import { epochMs, nextCursor, publicId } from './shapes.ts';

const runSchema = z.object({
  runId: publicId,
  attempt: z.number().int(),
  generation: z.number().int(),
  agentId: z.string(),
  claimedAt: epochMs,
  startedAt: epochMs.optional(),
  endedAt: epochMs.optional(),
  outcome: z.string().optional(),
  errorClass: z.enum(ERROR_CLASSES).optional(),
  error: z.string().optional(),
  exitCode: z.number().int().optional(),
  signal: z.string().optional(),
});

/** A file that a run brought home; its bytes are at /api/artifacts/:id. */
export const artifactSchema = z.object({
  artifactId: publicId,
  runId: publicId,
  name: z.string(),
  bytes: z.number().int(),
  sha256: z.string(),
  createdAt: epochMs,
});

/** `TaskRecord` of src/tasks/task.ts. */
export const taskSchema = z.object({
  taskId: publicId,
  status: z.enum(TASK_STATES),
  attempt: z.number().int(),
  maxAttempts: z.number().int(),
  generation: z.number().int(),
  template: z.string(),
  args: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])),
  priority: z.enum(PRIORITIES),
  lane: z.string(),
  pool: z.string(),
  agent: z.string().optional(),
  result: z.object({ summary: z.string().nullable(), outputs: z.record(z.string(), z.string()) }).optional(),
  error: z.string().optional(),
  errorZh: z.string().optional().describe('the error in Chinese, where it is one of ours'),
  errorClass: z.enum(ERROR_CLASSES).optional(),
  reason: z.string().optional(),
  source: z.enum(TASK_SOURCES),
  scopeKind: z.enum(['session', 'system']),
  label: z.string().optional(),
  parentTaskId: publicId.optional(),
  runAt: epochMs,
  createdAt: epochMs,
  startedAt: epochMs.optional(),
  endedAt: epochMs.optional(),
  lastEventAt: epochMs,
  cleanupAfter: epochMs.optional(),
  cancelRequestedAt: epochMs.optional(),
  progress: z.object({ percent: z.number().nullable(), message: z.string().nullable() }).optional(),
  checkpointVersion: z.number().int().optional(),
  question: z.object({ prompt: z.string(), options: z.array(z.string()) }).optional(),
  summary: z.string().optional(),
  sessionKey: z.string().optional(),
  flowId: publicId.optional(),
  notifyPolicy: z.enum(NOTIFY_POLICIES),
  deliveryStatus: z.enum(DELIVERY_STATES),
  needs: z
    .array(
      z.object({
        taskId: publicId,
        status: z.enum(TASK_STATES).optional().describe('absent: that task is gone'),
        when: z.enum(NEED_CONDITIONS),
        met: z.boolean(),
      }),
    )
    .optional()
    .describe('of a task of a graph that is read alone'),
  neededBy: z.array(z.object({ taskId: publicId, status: z.enum(TASK_STATES) })).optional(),
  artifacts: z
    .array(artifactSchema)
    .optional()
    .describe('of a task that is read alone: the files that its runs brought home'),
  runs: z.array(runSchema),
});

/** Tasks of a page are written as src/tasks/read.ts makes them. */
export const taskPageSchema = answeredAsIs(z.object({ tasks: z.array(taskSchema), next: nextCursor }));

export const eventSchema = z.object({
  type: z.string(),
  at: epochMs,
  runId: publicId.optional(),
  seq: z.number().int().optional(),
  data: z.unknown(),
});
