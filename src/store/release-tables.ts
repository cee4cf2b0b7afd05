/** Rows of packages for agents, and of what agents note. */
export interface ReleaseTable {
  id: number;
  version: string;
  sha256: string;
  bytes: number;
  signature: string | null;
  published_at: number;
  published_by: string;
  withdrawn_at: number | null;
}

/** What an agent tells in its heartbeats for a person to see. */
export interface AgentNoteTable {
  agent_id: string;
  dead_count: number;
  dead_reason: string | null;
  upgrade_version: string | null;
  upgrade_state: string | null;
  upgrade_tries: number | null;
  upgrade_reason: string | null;
  at: number;
}
