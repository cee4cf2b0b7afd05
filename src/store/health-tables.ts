/** Row types of what is known of the health of agents, and of logs that are followed in chats. */

export interface AgentDiagnosticTable {
  id: number;
  agent_id: string;
  at: number;
  /** JSON array of the names of the checks that failed. */
  failed: string;
  /** JSON text. */
  bundle: string;
}

export interface AgentAlertTable {
  agent_id: string;
  offline_at: number;
  told_at: number;
  /** Since when it is seen again; null while it is away. */
  back_at: number | null;
}

export interface LogFollowTable {
  id: number;
  task_id: number;
  session_key: string;
  /** JSON. */
  route: string;
  lang: string;
  /** Behind this report of this run it goes on. */
  run_id: number;
  seq: number;
  /** Messages so far; where the channel can edit, edits. */
  sent: number;
  next_at: number;
  give_up_at: number;
}
