import { z } from 'zod';
import { fleetName } from './protocol.ts';

/** Exchanges a join token for the agent's own credential; the one call without any. */
export const joinRequestSchema = z.strictObject({
  joinToken: z.string().min(1).max(128),
  /** Who it wants to be; the token may fix another, which is then a refusal. */
  agentId: fleetName.optional(),
  /** Who it is where neither the token nor `agentId` says. */
  host: fleetName.optional(),
  /** Made up by the machine and kept until it has its credential: with it a lost answer may be asked for again. */
  machineKey: z.string().min(16).max(128).optional(),
});
export type JoinRequest = z.infer<typeof joinRequestSchema>;

export const joinAnswerSchema = z.object({
  agentId: fleetName,
  agentToken: z.string().regex(/^[A-Za-z0-9_-]{8,128}$/),
  pools: z.array(fleetName),
  labels: z.record(z.string(), z.string()),
});
export type JoinAnswer = z.infer<typeof joinAnswerSchema>;

/** What the gateway knows of the caller's token; for `errand agent doctor`. Nothing changes by asking. */
export const whoAmIAnswerSchema = z.object({
  agentId: fleetName,
  pools: z.array(z.string()),
  labels: z.record(z.string(), z.string()),
  serverTime: z.number(),
  /** The instance that registered last; null where none ever did. */
  instance: z.object({ host: z.string(), online: z.boolean(), lastSeenAt: z.number() }).nullable(),
});
export type WhoAmIAnswer = z.infer<typeof whoAmIAnswerSchema>;
