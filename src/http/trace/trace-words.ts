import type { IdCodec } from '../../ids.ts';
import type { OutboxTable } from '../../store/outbox-tables.ts';
import type {
  EffectTable,
  EventTable,
  FlowTable,
  FollowupTable,
  InboxTable,
  RunTable,
  TaskTable,
} from '../../store/tables.ts';
import { activityOf, type RunSnapshot } from '../../tasks/snapshot-words.ts';
import { isFinal, type TaskState } from '../../tasks/states.ts';

/** In the order in which things of one moment are told. */
export const TRACE_KINDS = ['message', 'errand', 'flow', 'task', 'run', 'effect', 'delivery'] as const;
export type TraceKind = (typeof TRACE_KINDS)[number];

/** One step of a trace. */
export interface TraceEntry {
  at: number;
  kind: TraceKind;
  /** Of the thing that is told about. */
  id: string;
  taskId?: string;
  /** In plain words. Holds what people and programs wrote. */
  text: string;
}

/** The rows that have to do with a key. */
export interface Touched {
  messages: readonly InboxTable[];
  errands: readonly FollowupTable[];
  flows: readonly FlowTable[];
  tasks: readonly TaskTable[];
  events: readonly EventTable[];
  runs: readonly RunTable[];
  effects: readonly EffectTable[];
  deliveries: readonly OutboxTable[];
}

/** The rows as one story, oldest first. */
export function traceEntries(touched: Touched, ids: IdCodec): TraceEntry[] {
  const entries = [
    ...touched.messages.flatMap((row) => messageEntries(row, ids)),
    ...touched.errands.flatMap((row) => errandEntries(row, ids)),
    ...touched.flows.flatMap((row) => flowEntries(row, ids)),
    ...touched.tasks.flatMap((row) => taskEntries(row, ids)),
    ...touched.events.flatMap((row) => eventEntries(row, ids)),
    ...touched.runs.flatMap((row) => runEntries(row, ids)),
    ...touched.effects.flatMap((row) => effectEntries(row, ids)),
    ...touched.deliveries.flatMap((row) => deliveryEntries(row, ids)),
  ];
  // The sort is stable: what is told of one thing keeps its order.
  return entries.sort((a, b) => a.at - b.at || TRACE_KINDS.indexOf(a.kind) - TRACE_KINDS.indexOf(b.kind));
}

const QUOTE_CHARS = 200;
const quote = (text: string) => JSON.stringify(text.length > QUOTE_CHARS ? `${text.slice(0, QUOTE_CHARS)}…` : text);
/** `: why` where there is something to say. */
const because = (text: string | null) => (text === null || text === '' ? '' : `: ${clip(text)}`);
const clip = (text: string) => (text.length > QUOTE_CHARS ? `${text.slice(0, QUOTE_CHARS)}…` : text);

function messageEntries(row: InboxTable, ids: IdCodec): TraceEntry[] {
  const { chat } = JSON.parse(row.route) as { chat?: string };
  const base = { kind: 'message' as const, id: ids.encode(row.id) };
  const who = row.sender_name ?? row.sender_id ?? 'somebody';
  const entries = [
    { ...base, at: row.received_at, text: `${who} wrote in ${row.channel} chat ${chat ?? '?'}: ${quote(row.text)}` },
  ];
  if (row.status !== 'new' && row.status !== 'done')
    entries.push({
      ...base,
      at: row.done_at ?? row.received_at,
      text: `the message was ${row.status}${because(row.reason)}`,
    });
  return entries;
}

function errandEntries(row: FollowupTable, ids: IdCodec): TraceEntry[] {
  const base = { kind: 'errand' as const, id: ids.encode(row.id) };
  const entries = [{ ...base, at: row.created_at, text: `it asks for ${row.template}` }];
  if (row.status === 'failed')
    entries.push({ ...base, at: row.done_at ?? row.created_at, text: `nothing was started${because(row.reason)}` });
  if (row.status === 'started' && row.flow_id !== null)
    entries.push({ ...base, at: row.done_at ?? row.created_at, text: `it became flow ${ids.encode(row.flow_id)}` });
  return entries;
}

function flowEntries(row: FlowTable, ids: IdCodec): TraceEntry[] {
  const base = { kind: 'flow' as const, id: ids.encode(row.id) };
  const entries = [{ ...base, at: row.created_at, text: `flow ${base.id} was opened for ${row.owner_session_key}` }];
  if (row.ended_at !== null) entries.push({ ...base, at: row.ended_at, text: `flow ${base.id} is ${row.status}` });
  if (row.status === 'blocked')
    entries.push({
      ...base,
      at: row.updated_at,
      text: `flow ${base.id} needs a person${because(row.blocked_summary)}`,
    });
  return entries;
}

function taskEntries(row: TaskTable, ids: IdCodec): TraceEntry[] {
  const id = ids.encode(row.id);
  const base = { kind: 'task' as const, id, taskId: id };
  const key = row.idempotency === null ? '' : ` with the key ${quote((JSON.parse(row.idempotency) as string[])[2]!)}`;
  const entries = [
    { ...base, at: row.created_at, text: `task ${id} (${row.template}) was created by ${row.source}${key}` },
  ];
  if (row.ended_at !== null && isFinal(row.status as TaskState)) {
    const why = row.error ?? row.summary ?? row.reason;
    entries.push({ ...base, at: row.ended_at, text: `task ${id} is ${words(row.status)}${because(why)}` });
  }
  return entries;
}

/** Told by the rows of task and run, or of no interest here. */
const UNTOLD = new Set([
  ...[
    'progress',
    'log',
    'checkpoint',
    'output',
    'started',
    'succeeded',
    'failed',
    'timed_out',
    'cancelled',
    'released',
  ],
  ...['blocked', 'needs_input'],
]);

function eventEntries(row: EventTable, ids: IdCodec): TraceEntry[] {
  const isNoise = UNTOLD.has(row.type) || /^late_(progress|log|checkpoint|output|started)$/.test(row.type);
  if (isNoise) return [];
  const data = (row.data === null ? {} : JSON.parse(row.data)) as { by?: string } & Partial<RunSnapshot>;
  const taskId = ids.encode(row.task_id);
  const run = row.run_id === 0 ? '' : ` of run ${ids.encode(row.run_id)}`;
  const life = data.processes
    ? ` (${activityOf({ processes: data.processes })}, processes: ${data.processes.length + (data.omitted ?? 0)})`
    : '';
  const text = row.type.startsWith('late_')
    ? `a late word${run} changed nothing: ${words(row.type.slice(5))}`
    : `task ${taskId}: ${words(row.type)}${run}${life}${data.by === undefined ? '' : ` by ${data.by}`}`;
  return [{ at: row.at, kind: 'task', id: taskId, taskId, text }];
}

function runEntries(row: RunTable, ids: IdCodec): TraceEntry[] {
  const base = { kind: 'run' as const, id: ids.encode(row.id), taskId: ids.encode(row.task_id) };
  const entries = [
    { ...base, at: row.claimed_at, text: `agent ${row.agent_id} took it as run ${base.id}, try ${row.attempt}` },
  ];
  if (row.started_at !== null)
    entries.push({ ...base, at: row.started_at, text: `run ${base.id}: the program was started` });
  if (row.ended_at !== null) {
    const code = row.signal ?? (row.exit_code === null ? '' : `exit code ${row.exit_code}`);
    const text = `run ${base.id} ended: ${words(row.outcome ?? 'unknown')}${because(row.error ?? code)}`;
    entries.push({ ...base, at: row.ended_at, text });
  }
  return entries;
}

function effectEntries(row: EffectTable, ids: IdCodec): TraceEntry[] {
  const name = `effect ${row.type} ${quote(row.key)}`;
  const base = { kind: 'effect' as const, id: ids.encode(row.id), taskId: ids.encode(row.task_id) };
  const first = `${name} was begun by run ${ids.encode(row.first_run_id)}`;
  const entries: TraceEntry[] = [{ ...base, taskId: ids.encode(row.first_task_id), at: row.created_at, text: first }];
  if (row.begins > 1 && row.run_id !== null && row.state === 'init')
    entries.push({ ...base, at: row.updated_at, text: `${name} was begun again by run ${ids.encode(row.run_id)}` });
  if (row.late !== null) {
    const late = JSON.parse(row.late) as { outcome: string; at: number };
    entries.push({ ...base, at: late.at, text: `${name}: its run said ${late.outcome} after its own end` });
  }
  const settled = settledText(row);
  if (row.resolved_at !== null)
    entries.push({
      ...base,
      at: row.resolved_at,
      text: `${name} was resolved by ${row.resolved_by}${because(row.reason)}`,
    });
  if (settled !== null) entries.push({ ...base, at: row.updated_at, text: `${name} ${settled}` });
  return entries;
}

function settledText(row: EffectTable): string | null {
  if (row.state === 'success') return `took place${because(row.result)}`;
  if (row.state === 'fail') return `failed${because(row.error)}`;
  return row.run_id === null ? 'did not take place and may be begun again' : null;
}

function deliveryEntries(row: OutboxTable, ids: IdCodec): TraceEntry[] {
  const base = {
    kind: 'delivery' as const,
    id: ids.encode(row.id),
    taskId: row.task_id === null ? undefined : ids.encode(row.task_id),
  };
  const to = `${row.channel} chat ${row.chat}`;
  const entries = [
    { ...base, at: row.created_at, text: `a message (${row.kind}) to ${to} was written: ${quote(row.text)}` },
  ];
  if (row.sent_at !== null) {
    const receipt = row.platform_ids === null ? '' : ` as ${(JSON.parse(row.platform_ids) as unknown[]).join(', ')}`;
    entries.push({ ...base, at: row.sent_at, text: `${row.channel} has accepted it${receipt}` });
  } else entries.push({ ...base, at: row.created_at, text: `it is ${row.status}${because(row.error)}` });
  return entries;
}

const words = (name: string) => name.replaceAll('_', ' ');
