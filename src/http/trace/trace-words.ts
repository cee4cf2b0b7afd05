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
import type { Words } from '../../tasks/explain-facts.ts';
import { both } from '../../tasks/explain-words.ts';
import { activityOf, type RunSnapshot } from '../../tasks/snapshot-words.ts';
import { isFinal, type TaskState } from '../../tasks/states.ts';
import { named } from './trace-names.ts';

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
  /** The same in Chinese. */
  textZh: string;
}

/** A step while it is put into words. */
type Step = Omit<TraceEntry, 'text' | 'textZh'> & { text: Words };

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
  const steps: Step[] = [
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
  steps.sort((a, b) => a.at - b.at || TRACE_KINDS.indexOf(a.kind) - TRACE_KINDS.indexOf(b.kind));
  return steps.map(({ text, ...step }) => ({ ...step, text: text.en, textZh: text.zh }));
}

const QUOTE_CHARS = 200;
const quote = (text: string) => JSON.stringify(text.length > QUOTE_CHARS ? `${text.slice(0, QUOTE_CHARS)}…` : text);
/** A sentence, and `: why` where there is something to say. */
function because({ en, zh }: Words, why: string | null, whyZh = why): Words {
  return why === null || why === '' ? both(en, zh) : both(`${en}: ${clip(why)}`, `${zh}：${clip(whyZh ?? why)}`);
}
const clip = (text: string) => (text.length > QUOTE_CHARS ? `${text.slice(0, QUOTE_CHARS)}…` : text);

function messageEntries(row: InboxTable, ids: IdCodec): Step[] {
  const { chat } = JSON.parse(row.route) as { chat?: string };
  const base = { kind: 'message' as const, id: ids.encode(row.id) };
  const who = row.sender_name ?? row.sender_id;
  const where = `${row.channel} chat ${chat ?? '?'}`;
  const text = both(
    `${who ?? 'somebody'} wrote in ${where}: ${quote(row.text)}`,
    `${who ?? '有人'} 在 ${where} 中写道：${quote(row.text)}`,
  );
  const entries = [{ ...base, at: row.received_at, text }];
  if (row.status !== 'new' && row.status !== 'done')
    entries.push({
      ...base,
      at: row.done_at ?? row.received_at,
      text: because(both(`the message was ${row.status}`, `这条消息${named(row.status).zh}`), row.reason),
    });
  return entries;
}

function errandEntries(row: FollowupTable, ids: IdCodec): Step[] {
  const base = { kind: 'errand' as const, id: ids.encode(row.id) };
  const entries = [
    { ...base, at: row.created_at, text: both(`it asks for ${row.template}`, `它要求执行 ${row.template}`) },
  ];
  if (row.status === 'failed')
    entries.push({
      ...base,
      at: row.done_at ?? row.created_at,
      text: because(both('nothing was started', '没有启动任何任务'), row.reason),
    });
  if (row.status === 'started' && row.flow_id !== null) {
    const flow = ids.encode(row.flow_id);
    const text = both(`it became flow ${flow}`, `它成为流程 ${flow}`);
    entries.push({ ...base, at: row.done_at ?? row.created_at, text });
  }
  return entries;
}

function flowEntries(row: FlowTable, ids: IdCodec): Step[] {
  const base = { kind: 'flow' as const, id: ids.encode(row.id) };
  const { id } = base;
  const opened = both(
    `flow ${id} was opened for ${row.owner_session_key}`,
    `为 ${row.owner_session_key} 建立流程 ${id}`,
  );
  const entries = [{ ...base, at: row.created_at, text: opened }];
  if (row.ended_at !== null) {
    const text = both(`flow ${id} is ${row.status}`, `流程 ${id} ${named(row.status).zh}`);
    entries.push({ ...base, at: row.ended_at, text });
  }
  if (row.status === 'blocked')
    entries.push({
      ...base,
      at: row.updated_at,
      text: because(both(`flow ${id} needs a person`, `流程 ${id} 需要人工处理`), row.blocked_summary),
    });
  return entries;
}

function taskEntries(row: TaskTable, ids: IdCodec): Step[] {
  const id = ids.encode(row.id);
  const base = { kind: 'task' as const, id, taskId: id };
  const key = row.idempotency === null ? undefined : quote((JSON.parse(row.idempotency) as string[])[2]!);
  const text = both(
    `task ${id} (${row.template}) was created by ${row.source}${key === undefined ? '' : ` with the key ${key}`}`,
    `任务 ${id}（${row.template}）由 ${row.source} 创建${key === undefined ? '' : `，键为 ${key}`}`,
  );
  const entries = [{ ...base, at: row.created_at, text }];
  if (row.ended_at !== null && isFinal(row.status as TaskState)) {
    const why = row.error ?? row.summary ?? row.reason;
    const { en, zh } = named(row.status);
    const end = because(both(`task ${id} is ${en}`, `任务 ${id} ${zh}`), why, row.error_zh ?? why);
    entries.push({ ...base, at: row.ended_at, text: end });
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

function eventEntries(row: EventTable, ids: IdCodec): Step[] {
  const isNoise = UNTOLD.has(row.type) || /^late_(progress|log|checkpoint|output|started)$/.test(row.type);
  if (isNoise) return [];
  const data = (row.data === null ? {} : JSON.parse(row.data)) as { by?: string } & Partial<RunSnapshot>;
  const taskId = ids.encode(row.task_id);
  const run = row.run_id === 0 ? both('', '') : runName(ids.encode(row.run_id));
  const isLate = row.type.startsWith('late_');
  const what = named(isLate ? row.type.slice(5) : row.type);
  const life = lifeOf(data);
  const by = data.by === undefined ? both('', '') : both(` by ${data.by}`, `（${data.by}）`);
  const text = isLate
    ? both(`a late word${run.en} changed nothing: ${what.en}`, `${run.zh}迟到的消息没有改变任何东西：${what.zh}`)
    : both(
        `task ${taskId}: ${what.en}${run.en}${life.en}${by.en}`,
        `任务 ${taskId}：${run.zh}${what.zh}${life.zh}${by.zh}`,
      );
  return [{ at: row.at, kind: 'task', id: taskId, taskId, text }];
}

const runName = (id: string) => both(` of run ${id}`, `运行 ${id} `);

function lifeOf({ processes, omitted = 0 }: Partial<RunSnapshot>): Words {
  if (!processes) return both('', '');
  const [activity, count] = [activityOf({ processes }), processes.length + omitted];
  return both(` (${activity}, processes: ${count})`, `（${named(activity).zh}，进程数 ${count}）`);
}

function runEntries(row: RunTable, ids: IdCodec): Step[] {
  const base = { kind: 'run' as const, id: ids.encode(row.id), taskId: ids.encode(row.task_id) };
  const { id } = base;
  const taken = both(
    `agent ${row.agent_id} took it as run ${id}, try ${row.attempt}`,
    `机器 ${row.agent_id} 领取了它，运行 ${id}，第 ${row.attempt} 次执行`,
  );
  const entries = [{ ...base, at: row.claimed_at, text: taken }];
  if (row.started_at !== null)
    entries.push({
      ...base,
      at: row.started_at,
      text: both(`run ${id}: the program was started`, `运行 ${id}：程序已启动`),
    });
  if (row.ended_at !== null) {
    const code = row.exit_code === null ? both('', '') : both(`exit code ${row.exit_code}`, `退出码 ${row.exit_code}`);
    const said = row.error ?? row.signal;
    const outcome = named(row.outcome ?? 'unknown');
    const ended = both(`run ${id} ended: ${outcome.en}`, `运行 ${id} 结束：${outcome.zh}`);
    const text = because(ended, said ?? code.en, said ?? code.zh);
    entries.push({ ...base, at: row.ended_at, text });
  }
  return entries;
}

function effectEntries(row: EffectTable, ids: IdCodec): Step[] {
  const thing = `${row.type} ${quote(row.key)}`;
  const about = (en: string, zh: string) => both(`effect ${thing} ${en}`, `副作用 ${thing} ${zh}`);
  const base = { kind: 'effect' as const, id: ids.encode(row.id), taskId: ids.encode(row.task_id) };
  const firstRun = ids.encode(row.first_run_id);
  const first = about(`was begun by run ${firstRun}`, `由运行 ${firstRun} 开始`);
  const entries: Step[] = [{ ...base, taskId: ids.encode(row.first_task_id), at: row.created_at, text: first }];
  if (row.begins > 1 && row.run_id !== null && row.state === 'init') {
    const run = ids.encode(row.run_id);
    entries.push({
      ...base,
      at: row.updated_at,
      text: about(`was begun again by run ${run}`, `由运行 ${run} 再次开始`),
    });
  }
  if (row.late !== null) {
    const late = JSON.parse(row.late) as { outcome: string; at: number };
    const text = both(
      `effect ${thing}: its run said ${late.outcome} after its own end`,
      `副作用 ${thing}：它的运行在结束之后才报告${named(late.outcome).zh}`,
    );
    entries.push({ ...base, at: late.at, text });
  }
  if (row.resolved_at !== null)
    entries.push({
      ...base,
      at: row.resolved_at,
      text: because(about(`was resolved by ${row.resolved_by}`, `由 ${row.resolved_by} 裁定`), row.reason),
    });
  const settled = settledText(row, about);
  if (settled !== null) entries.push({ ...base, at: row.updated_at, text: settled });
  return entries;
}

function settledText(row: EffectTable, about: (en: string, zh: string) => Words): Words | null {
  if (row.state === 'success') return because(about('took place', '已经发生'), row.result);
  if (row.state === 'fail') return because(about('failed', '失败'), row.error);
  if (row.run_id !== null) return null;
  return about('did not take place and may be begun again', '没有发生，可以再次开始');
}

function deliveryEntries(row: OutboxTable, ids: IdCodec): Step[] {
  const base = {
    kind: 'delivery' as const,
    id: ids.encode(row.id),
    taskId: row.task_id === null ? undefined : ids.encode(row.task_id),
  };
  const to = `${row.channel} chat ${row.chat}`;
  const written = both(
    `a message (${row.kind}) to ${to} was written: ${quote(row.text)}`,
    `给 ${to} 的消息（${named(row.kind).zh}）已写下：${quote(row.text)}`,
  );
  const entries = [{ ...base, at: row.created_at, text: written }];
  if (row.sent_at !== null) {
    const receipt = row.platform_ids === null ? '' : (JSON.parse(row.platform_ids) as unknown[]).join(', ');
    const text = both(
      `${row.channel} has accepted it${receipt === '' ? '' : ` as ${receipt}`}`,
      `${row.channel} 已接收${receipt === '' ? '' : `，编号 ${receipt}`}`,
    );
    entries.push({ ...base, at: row.sent_at, text });
  } else {
    const text = because(both(`it is ${row.status}`, `它${named(row.status).zh}`), row.error);
    entries.push({ ...base, at: row.created_at, text });
  }
  return entries;
}
