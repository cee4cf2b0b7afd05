import type { Migration } from '../migrate.ts';

/** `col in (…)` as an OR chain: cheaper for SQLite to check at every write than IN with ten words. */
const oneOf = (column: string, words: string) =>
  `check (${words
    .split(' ')
    .map((word) => `${column} = '${word}'`)
    .join(' or ')})`;
const oneOfOrNull = (column: string, words: string) =>
  oneOf(column, words).replace('check (', `check (${column} is null or `);

/** Times are epoch milliseconds; `json` columns hold JSON text; ids come from one sequence for all tables (`id_block`). */
export const initialSchema: Migration = {
  version: 1,
  name: 'initial',
  statements: [
    'create table meta (key text primary key, value text not null) without rowid',
    'create table id_block (name text primary key, next integer not null) without rowid',
    "insert into id_block (name, next) values ('all', 1)",

    `create table stream (
      id integer primary key,
      queue text not null,
      owner text not null,
      template text not null,
      lane text not null,
      serial text not null,
      created_at integer not null,
      unique (queue, owner, template, lane, serial)
    )`,
    // Runs that count against a limit; a slot whose run is over is free.
    `create table slot (
      scope text not null,
      run_id integer not null,
      primary key (scope, run_id)
    ) without rowid`,
    `create table rate_bucket (
      template text primary key,
      tokens real not null,
      at integer not null
    ) without rowid`,
    // What people have limited or paused.
    `create table gate (
      kind text not null ${oneOf('kind', 'template owner pool lane gateway')},
      name text not null,
      concurrency integer check (concurrency >= 0),
      paused_at integer,
      paused_by text,
      reason text,
      primary key (kind, name)
    ) without rowid`,

    `create table task (
      id integer primary key,
      template text not null,
      runtime text not null,
      stream_id integer not null,
      labels text,
      status text not null ${oneOf('status', 'waiting queued leased running paused succeeded failed timed_out cancelled lost')},
      priority integer not null check (priority between 0 and 2),
      run_at integer not null,
      args text not null,
      idempotency text,
      payload_digest text,
      session_key text,
      flow_id integer references flow (id),
      source text not null ${oneOf('source', 'chat cron hook api workflow subagent')},
      scope_kind text not null ${oneOf('scope_kind', 'session system')},
      label text,
      parent_id integer,
      notify_policy text not null ${oneOf('notify_policy', 'done_only state_changes silent')},
      delivery_status text not null ${oneOf('delivery_status', 'pending delivered session_queued failed parent_missing not_applicable')},
      generation integer not null default 1,
      attempt integer not null default 0,
      max_attempts integer not null check (max_attempts >= 1),
      retry text,
      timeout_ms integer not null,
      expires_at integer,
      run_id integer,
      cancel_requested_at integer,
      progress text,
      checkpoint text,
      question text,
      summary text,
      outputs text,
      error text,
      error_class text ${oneOfOrNull('error_class', 'transient rate_limited permanent')},
      reason text,
      created_at integer not null,
      started_at integer,
      ended_at integer,
      last_event_at integer not null,
      cleanup_after integer,
      check ((run_id is not null) = (status = 'leased' or status = 'running')),
      check ((ended_at is not null) = (status = 'succeeded' or status = 'failed' or status = 'timed_out' or status = 'cancelled' or status = 'lost'))
    )`,
    "create index task_claim on task (stream_id, priority, run_at, id) where status = 'queued'",
    // Without the states that every task passes through or ends in: a run tells who holds a task, and most tasks have succeeded.
    "create index task_status on task (status, id) where status <> 'leased' and status <> 'running' and status <> 'succeeded'",
    'create unique index task_idempotency on task (idempotency) where idempotency is not null',
    'create index task_session on task (session_key, id) where session_key is not null',
    // What is not over in a conversation, however much is.
    'create index task_live on task (session_key, id) where session_key is not null and ended_at is null',
    'create index task_flow on task (flow_id) where flow_id is not null',
    // Without the state, which would tempt the planner to the status index and its whole backlog.
    'create index task_expiry on task (expires_at) where expires_at is not null and ended_at is null and run_id is null',
    'create index task_cancel on task (cancel_requested_at) where cancel_requested_at is not null and run_id is not null',

    `create table run (
      id integer primary key,
      task_id integer not null references task (id),
      generation integer not null,
      attempt integer not null,
      agent_id text not null,
      instance_id text not null,
      lease_token text not null,
      lease_until integer,
      deadline_at integer not null,
      claimed_at integer not null,
      started_at integer,
      ended_at integer,
      outcome text ${oneOfOrNull('outcome', 'succeeded failed timed_out cancelled lost released blocked needs_input')},
      error_class text,
      error text,
      exit_code integer,
      signal text
    )`,
    'create index run_task on run (task_id)',
    // What is held right now, never many: also looked through for one agent's, which saves every run a second entry.
    'create index run_live on run (lease_until, agent_id) where lease_until is not null',

    // Reports of an agent carry their own seq (dedupe is this key); the server's own events of a run have negative ones, of a task run 0.
    `create table event (
      task_id integer not null,
      run_id integer not null,
      seq integer not null,
      type text not null,
      at integer not null,
      data text,
      primary key (task_id, run_id, seq)
    ) without rowid`,

    `create table flow (
      id integer primary key,
      owner_session_key text not null,
      status text not null ${oneOf('status', 'active waiting blocked finished failed cancelled')},
      revision integer not null default 1,
      route text,
      goal text not null,
      notify_policy text not null ${oneOf('notify_policy', 'done_only state_changes silent')},
      wait_target text,
      blocked_task_id integer,
      blocked_summary text,
      outputs text,
      cancel_requested_at integer,
      created_at integer not null,
      updated_at integer not null,
      ended_at integer
    )`,
    'create index flow_owner on flow (owner_session_key, id)',
    "create index flow_live on flow (status, id) where status = 'active' or status = 'waiting' or status = 'blocked'",

    `create table session (
      session_key text primary key,
      route text not null,
      lang text ${oneOfOrNull('lang', 'en zh')},
      notify_policy text ${oneOfOrNull('notify_policy', 'done_only state_changes silent')},
      created_at integer not null,
      last_message_at integer not null
    ) without rowid`,

    `create table person (
      id integer primary key,
      channel text not null,
      account text not null,
      user_id text not null,
      name text,
      role text not null ${oneOf('role', 'viewer operator approver admin')},
      paired_at integer not null,
      paired_by text not null,
      revoked_at integer,
      unique (channel, account, user_id)
    )`,
    `create table pairing (
      id integer primary key,
      channel text not null,
      account text not null,
      user_id text not null,
      name text,
      route text not null,
      code_hash text not null unique,
      created_at integer not null,
      expires_at integer not null,
      unique (channel, account, user_id)
    )`,
    `create table group_access (
      channel text not null,
      account text not null,
      chat text not null,
      allowed_at integer not null,
      allowed_by text not null,
      primary key (channel, account, chat)
    ) without rowid`,

    `create table inbox (
      id integer primary key,
      channel text not null,
      account text not null,
      identity text not null,
      kind text not null ${oneOf('kind', 'text button other')},
      route text not null,
      sender_id text,
      sender_name text,
      text text not null,
      addressed integer not null,
      sent_at integer,
      received_at integer not null,
      status text not null ${oneOf('status', 'new done refused ignored failed')},
      attempts integer not null default 0,
      session_key text,
      reason text,
      done_at integer,
      unique (channel, account, identity)
    )`,
    "create index inbox_new on inbox (id) where status = 'new'",
    'create index inbox_session on inbox (session_key, id) where session_key is not null',

    `create table followup (
      id integer primary key,
      inbox_id integer not null unique references inbox (id),
      session_key text not null,
      route text not null,
      user_id text not null,
      template text not null,
      args text not null,
      status text not null ${oneOf('status', 'queued started failed')},
      reason text,
      flow_id integer,
      created_at integer not null,
      done_at integer
    )`,
    "create index followup_queued on followup (id) where status = 'queued'",

    `create table outbox (
      id integer primary key,
      channel text not null,
      account text not null,
      chat text not null,
      route text not null,
      session_key text,
      kind text not null ${oneOf('kind', 'final update reply notice')},
      text text not null,
      status text not null ${oneOf('status', 'pending sending sent unknown dead superseded expired')},
      task_id integer,
      flow_id integer,
      dedupe_key text unique,
      maybe_repeat integer not null default 0,
      safe_repeats integer not null default 0,
      attempts integer not null default 0,
      next_at integer not null,
      give_up_at integer not null,
      lease_until integer,
      parts_sent integer not null default 0,
      platform_ids text,
      error text,
      created_at integer not null,
      sent_at integer
    )`,
    // One sender per chat, whatever the code does.
    "create unique index outbox_sender on outbox (channel, account, chat) where status = 'sending'",
    "create index outbox_sending on outbox (lease_until) where status = 'sending'",
    "create index outbox_chat on outbox (channel, account, chat, id) where status = 'pending' or status = 'sending'",
    "create index outbox_undelivered on outbox (status) where status = 'unknown' or status = 'dead' or status = 'expired'",
    'create index outbox_session on outbox (session_key, id) where session_key is not null',
    // The others of a task are found by their dedupe key, which begins with it.
    "create index outbox_task on outbox (task_id) where task_id is not null and status = 'pending'",

    `create table chat_hold (
      channel text not null,
      account text not null,
      chat text not null,
      until integer,
      unreachable_since integer,
      reason text,
      primary key (channel, account, chat)
    ) without rowid`,

    `create table agent (
      agent_id text primary key,
      instance_id text not null,
      boot_id text not null,
      version text not null,
      host text not null,
      pools text not null,
      labels text not null,
      runtimes text not null,
      concurrency integer not null,
      load real,
      registered_at integer not null,
      last_seen_at integer not null,
      offline_at integer
    ) without rowid`,
    `create table agent_token (
      id integer primary key,
      token_hash text not null unique,
      agent_id text not null,
      pools text not null,
      labels text not null,
      created_at integer not null,
      revoked_at integer
    )`,

    `create table channel_state (
      channel text not null,
      account text not null,
      key text not null,
      value text not null,
      primary key (channel, account, key)
    ) without rowid`,
    `create table named_lease (
      name text primary key,
      holder text not null,
      until integer not null,
      epoch integer not null
    ) without rowid`,

    `create table login (
      token_hash text primary key,
      kind text not null ${oneOf('kind', 'link cookie')},
      user_id text not null,
      name text not null,
      created_at integer not null,
      expires_at integer not null
    ) without rowid`,

    `create table audit (
      id integer primary key,
      at integer not null,
      actor text not null,
      action text not null,
      target text not null,
      data text
    )`,
  ],
};
