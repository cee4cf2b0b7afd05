/** Row types of the waiting line: streams and what limits them (tasks/streams.ts, tasks/gates.ts). */
export interface StreamTable {
  id: number;
  queue: string;
  owner: string;
  template: string;
  lane: string;
  serial: string;
  created_at: number;
}

export interface SlotTable {
  scope: string;
  run_id: number;
}

export interface RateBucketTable {
  template: string;
  tokens: number;
  at: number;
}

export interface GateTable {
  kind: string;
  name: string;
  concurrency: number | null;
  paused_at: number | null;
  paused_by: string | null;
  reason: string | null;
}
