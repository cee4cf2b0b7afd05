import type { AgentDrainTable, AgentTable, AgentTokenTable, JoinTokenTable } from './agent-tables.ts';
import type { ArtifactTable } from './artifact-tables.ts';
import type { AgentAlertTable, AgentDiagnosticTable, LogFollowTable } from './health-tables.ts';
import type { GateTable, RateBucketTable, SlotTable, StreamTable } from './line-tables.ts';
import type { ChatHoldTable, OutboxTable, SendRateTable } from './outbox-tables.ts';
import type { AgentNoteTable, ReleaseTable } from './release-tables.ts';
import type { CheckpointTable, DeadLetterTable } from './retry-tables.ts';

/** Row types of every table (migrations hold the truth). Times: epoch milliseconds. `Json` columns hold JSON text. */
type Json = string;
type Flag = number;

export interface TaskTable {
  id: number;
  template: string;
  runtime: string;
  /** The line it stands in; see tasks/streams.ts. */
  stream_id: number;
  labels: Json | null;
  status: string;
  /** 0 high, 1 normal, 2 low. */
  priority: number;
  run_at: number;
  args: Json;
  /** Scope and key, unique; see tasks/create.ts. */
  idempotency: string | null;
  payload_digest: string | null;
  session_key: string | null;
  flow_id: number | null;
  source: string;
  scope_kind: string;
  label: string | null;
  parent_id: number | null;
  notify_policy: string;
  delivery_status: string;
  generation: number;
  attempt: number;
  max_attempts: number;
  /** Retry policy, null for the default. */
  retry: Json | null;
  timeout_ms: number;
  expires_at: number | null;
  run_id: number | null;
  cancel_requested_at: number | null;
  progress: Json | null;
  question: Json | null;
  summary: string | null;
  outputs: Json | null;
  error: string | null;
  error_class: string | null;
  reason: string | null;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  last_event_at: number;
  cleanup_after: number | null;
  /** What a lost lease may do: retry, ask or fail. */
  on_lost: string;
  /** Of this generation: how often, and for how long in sum, another side asked it to come back later. */
  postponed: number;
  postponed_ms: number;
  /** Of this generation: leases that were lost before the program was said to run. */
  unstarted_losses: number;
  /** Of this generation: how often an agent gave it back. */
  hand_backs: number;
  /** `error` in Chinese, where the engine itself has written it. */
  error_zh: string | null;
  /** 1: may need, or be needed by, other tasks of its flow (table `need`). */
  graph: number;
  /** Time to live that begins when its needs are met. */
  queue_ttl_ms: number | null;
  /** Of its row in `checkpoint`; null: there is none. */
  checkpoint_version: number | null;
}

export interface RunTable {
  id: number;
  task_id: number;
  generation: number;
  attempt: number;
  agent_id: string;
  instance_id: string;
  lease_token: string;
  /** Null once the run has ended. */
  lease_until: number | null;
  /** Past this the server itself times the run out. */
  deadline_at: number;
  claimed_at: number;
  started_at: number | null;
  ended_at: number | null;
  outcome: string | null;
  error_class: string | null;
  error: string | null;
  exit_code: number | null;
  signal: string | null;
}

export interface EventTable {
  task_id: number;
  run_id: number;
  seq: number;
  type: string;
  at: number;
  data: Json | null;
}

export interface FlowTable {
  id: number;
  owner_session_key: string;
  status: string;
  revision: number;
  route: Json | null;
  goal: string;
  notify_policy: string;
  wait_target: string | null;
  blocked_task_id: number | null;
  blocked_summary: string | null;
  outputs: Json | null;
  cancel_requested_at: number | null;
  created_at: number;
  updated_at: number;
  ended_at: number | null;
  /** 1: submitted as a whole, told with one message at its end. */
  graph: number;
  /** What is left then is stopped. */
  deadline_at: number | null;
}

export interface SessionTable {
  session_key: string;
  route: Json;
  lang: string | null;
  notify_policy: string | null;
  created_at: number;
  last_message_at: number;
}

export interface PersonTable {
  id: number;
  channel: string;
  account: string;
  user_id: string;
  name: string | null;
  role: string;
  paired_at: number;
  paired_by: string;
  revoked_at: number | null;
}

export interface PairingTable {
  id: number;
  channel: string;
  account: string;
  user_id: string;
  name: string | null;
  route: Json;
  code_hash: string;
  created_at: number;
  expires_at: number;
}

export interface GroupAccessTable {
  channel: string;
  account: string;
  chat: string;
  allowed_at: number;
  allowed_by: string;
  /** What the bot acts on there: `mention`, `commands`, `off`. */
  policy: string;
}

export interface InboxTable {
  id: number;
  channel: string;
  account: string;
  identity: string;
  kind: string;
  route: Json;
  sender_id: string | null;
  sender_name: string | null;
  text: string;
  addressed: Flag;
  sent_at: number | null;
  received_at: number;
  status: string;
  attempts: number;
  session_key: string | null;
  reason: string | null;
  done_at: number | null;
  /** JSON, null for most: `extra` of intake/extra.ts. */
  extra: Json | null;
  /** Since when the person has been asked whether to act on it; null: nobody waits for an answer. */
  asked_at: number | null;
}

export interface FollowupTable {
  id: number;
  inbox_id: number;
  session_key: string;
  route: Json;
  user_id: string;
  template: string;
  args: Json;
  status: string;
  reason: string | null;
  flow_id: number | null;
  created_at: number;
  done_at: number | null;
}

export interface ChannelStateTable {
  channel: string;
  account: string;
  key: string;
  value: Json;
}

export interface NamedLeaseTable {
  name: string;
  holder: string;
  until: number;
  epoch: number;
}

export interface LoginTable {
  token_hash: string;
  kind: string;
  user_id: string;
  name: string;
  created_at: number;
  expires_at: number;
}

export interface AuditTable {
  id: number;
  at: number;
  actor: string;
  action: string;
  target: string;
  data: Json | null;
}

export interface EffectTable {
  id: number;
  type: string;
  key: string;
  /** `init`: begun, and nobody has said how it ended. */
  state: string;
  policy: string;
  digest: string | null;
  result: string | null;
  error: string | null;
  first_task_id: number;
  first_run_id: number;
  /** The caller that began it last. */
  task_id: number;
  /** Null: given back; whoever begins it next is the first. */
  run_id: number | null;
  begins: number;
  /** What its run said after its own end; changed nothing. */
  late: Json | null;
  resolved_by: string | null;
  resolved_at: number | null;
  reason: string | null;
  created_at: number;
  updated_at: number;
}

export interface EffectWaitTable {
  effect_id: number;
  task_id: number;
  /** The run that was told to end as blocked. */
  run_id: number;
  /** A person has decided while that run was on its way out. */
  resolved_at: number | null;
}

export interface BreakerTable {
  name: string;
  state: string;
  /** One more with every change: the guard of compare-and-set. */
  revision: number;
  /** The settings that its last outcome came with. */
  threshold: number;
  window_ms: number;
  minimum: number;
  cooldown_ms: number;
  buckets: Json;
  opened_at: number | null;
  until_at: number | null;
  reason: string | null;
  probe_run: number | null;
  probe_until_at: number | null;
  last_error: string | null;
  last_failure_at: number | null;
  changed_at: number;
}

export interface NeedTable {
  task_id: number;
  on_task_id: number;
  /** `success`, or `always`: its end alone is enough. */
  condition: string;
  met: Flag;
}

export interface Tables {
  stream: StreamTable;
  slot: SlotTable;
  rate_bucket: RateBucketTable;
  gate: GateTable;
  meta: { key: string; value: string };
  id_block: { name: string; next: number };
  task: TaskTable;
  run: RunTable;
  event: EventTable;
  flow: FlowTable;
  session: SessionTable;
  person: PersonTable;
  pairing: PairingTable;
  group_access: GroupAccessTable;
  inbox: InboxTable;
  followup: FollowupTable;
  outbox: OutboxTable;
  chat_hold: ChatHoldTable;
  agent: AgentTable;
  agent_token: AgentTokenTable;
  agent_drain: AgentDrainTable;
  channel_state: ChannelStateTable;
  named_lease: NamedLeaseTable;
  login: LoginTable;
  audit: AuditTable;
  breaker: BreakerTable;
  checkpoint: CheckpointTable;
  dead_letter: DeadLetterTable;
  effect: EffectTable;
  effect_wait: EffectWaitTable;
  need: NeedTable;
  artifact: ArtifactTable;
  join_token: JoinTokenTable;
  release: ReleaseTable;
  agent_note: AgentNoteTable;
  agent_diagnostic: AgentDiagnosticTable;
  agent_alert: AgentAlertTable;
  log_follow: LogFollowTable;
  send_rate: SendRateTable;
  refusal_notice: { channel: string; account: string; whom: string; told_at: number };
}
