/** As in `tables.ts`: JSON text, and 0 or 1. */
type Json = string;
type Flag = number;

export interface OutboxTable {
  id: number;
  channel: string;
  account: string;
  chat: string;
  route: Json;
  session_key: string | null;
  kind: string;
  text: string;
  status: string;
  task_id: number | null;
  flow_id: number | null;
  dedupe_key: string | null;
  /** An earlier call may have reached the platform, and the platform would show it again: the text says so. */
  maybe_repeat: Flag;
  /** Verbatim repeats after lost answers, on platforms that drop a repeat. */
  safe_repeats: number;
  /** Leases so far; the number of the current one is the sender's fence. */
  attempts: number;
  next_at: number;
  /** When `next_at` was put off last; null: it is as old as the message. */
  put_off_at: number | null;
  /** A try that fails after this is the last. */
  give_up_at: number;
  lease_until: number | null;
  parts_sent: number;
  platform_ids: Json | null;
  error: string | null;
  created_at: number;
  sent_at: number | null;
  /** When its text was changed last, where the row itself is what people see, or where the platform let it be changed. */
  edited_at: number | null;
  /** How parts of the text look; null: plain. */
  marks: Json | null;
  /** 0: results, answers, questions; 1: how a task goes, edits. Within a rank the ids decide. */
  rank: number;
  /** The dedupe key of the message whose text this one replaces. */
  edits: string | null;
  /** The message that lists this one among others that had waited too long. */
  digest_id: number | null;
}

export interface SendRateTable {
  channel: string;
  account: string;
  /** Empty: the whole account. */
  chat: string;
  /** JSON: by the length of a window in milliseconds, the calls within it. */
  used: string;
  /** Nothing is sent before this. */
  free_at: number;
  /** In the future: by a clock that has been set back since. */
  taken_at: number;
}

export interface ChatHoldTable {
  channel: string;
  account: string;
  chat: string;
  until: number | null;
  unreachable_since: number | null;
  reason: string | null;
  /** When it was held; in the future: by a clock that has been set back since. */
  held_at: number | null;
}
