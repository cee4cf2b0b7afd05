/** A file that a run has brought home; its bytes lie in the state folder under `file`. */
export interface ArtifactTable {
  id: number;
  task_id: number;
  run_id: number;
  name: string;
  bytes: number;
  sha256: string;
  file: string;
  created_at: number;
}
