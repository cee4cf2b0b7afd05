import { z } from 'zod';
import { AGENT_ID } from './protocol.ts';

/** The part of agent protocol v1 that is not about reports: files of runs, and what a template consists of. */

/** Who calls, and by which lease. */
const held = {
  agentId: z.string().regex(AGENT_ID, 'must be 1 to 64 letters, digits, dots, dashes or underscores'),
  instanceId: z.string().min(1).max(128),
  runId: z.string().min(1).max(32),
  leaseToken: z.string().min(1).max(128),
};

/** Bounds of the files of one run (docs/agents.md). A piece is what one call carries. */
export const ARTIFACT_LIMITS = {
  files: 32,
  fileBytes: 64 * 1024 * 1024,
  runBytes: 256 * 1024 * 1024,
  nameChars: 200,
  pieceBytes: 512 * 1024,
} as const;

/**
 * A file's name as people see it, with `/` between its folders. It never becomes a path; this keeps nonsense and tricks out of what
 * browsers and terminals are given.
 */
export function isArtifactName(name: string): boolean {
  if (name.length > ARTIFACT_LIMITS.nameChars || !name.isWellFormed() || /[\p{C}\\]/u.test(name)) return false;
  return name.split('/').every((part) => part.trim() !== '' && !/^\.{1,2}$/.test(part));
}

/** One piece of a file. The same call may be repeated: the answer says from where to go on. */
export const artifactRequestSchema = z.strictObject({
  ...held,
  name: z.string().refine(isArtifactName, 'is no name for a file'),
  bytes: z.number().int().min(0).max(ARTIFACT_LIMITS.fileBytes),
  sha256: z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 hex digits'),
  offset: z.number().int().min(0),
  data: z.base64().max(Math.ceil(ARTIFACT_LIMITS.pieceBytes / 3) * 4),
});
export type ArtifactRequest = z.infer<typeof artifactRequestSchema>;

/** `refused`: this file is not wanted (too many, too large together); `lease_lost`: nothing of this run is. */
export type ArtifactAnswer =
  | { answer: 'more'; offset: number }
  | { answer: 'stored' }
  | { answer: 'refused' | 'lease_lost'; reason: string };

/** What the template of a held run consists of, so that a pinned digest can be checked. */
export const contentRequestSchema = z.strictObject(held);
