/** Rows of agents, of who may be one, and of what they are told. `Json` columns hold JSON text. */
type Json = string;

export interface AgentTable {
  agent_id: string;
  instance_id: string;
  boot_id: string;
  version: string;
  host: string;
  pools: Json;
  labels: Json;
  runtimes: Json;
  concurrency: number;
  load: number | null;
  registered_at: number;
  last_seen_at: number;
  offline_at: number | null;
}

export interface AgentDrainTable {
  agent_id: string;
  at: number;
  by: string;
  why: string | null;
}

export interface AgentTokenTable {
  id: number;
  token_hash: string;
  agent_id: string;
  pools: Json;
  labels: Json;
  created_at: number;
  revoked_at: number | null;
  /** When it was first presented. */
  used_at: number | null;
  /** The join that it came by; null where it was issued for good. */
  join_id: number | null;
}

export interface JoinTokenTable {
  id: number;
  token_hash: string;
  /** Null: the machine names itself. */
  agent_id: string | null;
  pools: Json;
  labels: Json;
  created_at: number;
  expires_at: number;
  used_at: number | null;
  /** Of the key that the machine made up for this join. */
  machine_hash: string | null;
  joined_agent_id: string | null;
  agent_token_id: number | null;
}
