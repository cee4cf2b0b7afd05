/** Row types of what a task leaves for its next attempt, and for the person who decides whether there is one. */

export interface DeadLetterTable {
  task_id: number;
  /** Newer with every death. */
  seq: number;
  template: string;
  session_key: string | null;
  state: string;
  /** How the task ended. */
  status: string;
  generation: number;
  attempt: number;
  /** How often it died. */
  deaths: number;
  error: string | null;
  error_class: string | null;
  reason: string | null;
  first_died_at: number;
  died_at: number;
  decided_at: number | null;
  decided_by: string | null;
  note: string | null;
}

export interface CheckpointTable {
  task_id: number;
  version: number;
  /** Who saved it, and the number of that report. */
  run_id: number;
  seq: number;
  at: number;
  bytes: number;
  /** JSON text. */
  data: string;
}
