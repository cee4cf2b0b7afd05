import { type Command, Option } from 'commander';
import type { TaskEventRecord } from '../tasks/read.ts';
import { isFinal, TASK_STATES } from '../tasks/states.ts';
import type { RunRecord, TaskRecord } from '../tasks/task.ts';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';
import { fields, localTime, oneLine, table } from './table.ts';
import { logsCommand } from './task-logs.ts';
import { auditCommand } from './tasks-audit.ts';
import { placeCommands } from './tasks-places.ts';
import { traceCommand } from './trace.ts';
import { whyCommand } from './why.ts';

interface ListOptions {
  status?: string;
  template?: string;
  session?: string;
  agent?: string;
  flow?: string;
  limit?: string;
  cursor?: string;
}

/** `errand tasks …` */
export function tasksCommands(program: Command, act: Act): void {
  const tasks = program.command('tasks').description('look at tasks, cancel, retry, pause and move them');
  tasks
    .command('list')
    .description('list tasks, the newest first')
    .addOption(new Option('--status <state>', 'only in this state').choices(TASK_STATES))
    .option('--template <id>', 'only of this template')
    .option('--session <key>', 'only of this conversation')
    .option('--agent <id>', 'only those that this agent holds')
    .option('--flow <id>', 'only of this flow')
    .option('--limit <n>', 'at most so many (1 to 200, default 50)')
    .option('--cursor <cursor>', 'the next page, as the last one told')
    .addHelpText(
      'after',
      '\nExamples:\n  errand tasks list --status running\n  errand tasks list --template hello --limit 10 --json',
    )
    .action(act(list));
  tasks
    .command('show <task>')
    .description('show one task with its runs')
    .option('--events', 'also what happened to it')
    .addHelpText('after', '\nExample:\n  errand tasks show k3f9')
    .action(act(show));
  logsCommand(tasks, act);
  tasks
    .command('cancel <task>')
    .description('cancel a task; one that runs is told to stop')
    .addHelpText('after', '\nExample:\n  errand tasks cancel k3f9')
    .action(act((context, id: string) => change(context, id, 'cancel')));
  tasks
    .command('retry <task>')
    .description('run a task again that ended without success, or that is blocked')
    .addHelpText('after', '\nExample:\n  errand tasks retry k3f9')
    .action(act((context, id: string) => change(context, id, 'retry')));
  placeCommands(tasks, act);
  whyCommand(tasks, act);
  traceCommand(tasks, act);
  auditCommand(tasks, act);
}

async function list({ api, show: print }: Context, options: ListOptions): Promise<void> {
  const page = await api().get<{ tasks: TaskRecord[]; next?: string }>('/api/tasks', { ...options });
  print(page, () => {
    const rows = page.tasks.map((task) => [
      task.taskId,
      task.status,
      task.template,
      `${task.attempt}/${task.maxAttempts}`,
      localTime(task.createdAt),
      endOf(task),
    ]);
    return [
      table(['TASK', 'STATUS', 'TEMPLATE', 'RUNS', 'CREATED', 'RESULT'], rows, 'No tasks.'),
      ...nextPage(page.next),
    ].join('\n');
  });
}

/** How to go on, where a list does. */
export function nextPage(next: string | undefined): string[] {
  return next === undefined ? [] : [`More: --cursor ${next}`];
}

async function show({ api, show: print }: Context, id: string, options: { events?: true }): Promise<void> {
  const task = await api().get<TaskRecord>(path`/api/tasks/${id}`);
  const events = options.events
    ? (await api().get<{ events: TaskEventRecord[] }>(path`/api/tasks/${id}/events`)).events
    : undefined;
  print(events ? { ...task, events } : task, () =>
    [describe(task), runsOf(task.runs), ...(events ? [eventsOf(events)] : [])].join('\n\n'),
  );
}

function describe(task: TaskRecord): string {
  return fields([
    ['task', task.taskId],
    [
      'status',
      task.cancelRequestedAt !== undefined && !isFinal(task.status) ? `${task.status} (cancel requested)` : task.status,
    ],
    ['template', task.template],
    ['arguments', JSON.stringify(task.args)],
    ['label', task.label],
    ['place', task.agent === undefined ? `pool ${task.pool}` : `agent ${task.agent}`],
    ['source', task.source],
    ['session', task.sessionKey],
    ['flow', task.flowId],
    ['needs', task.needs?.map((need) => `${need.taskId} (${need.status ?? 'gone'})`).join(', ') || undefined],
    ['needed by', task.neededBy?.map((other) => `${other.taskId} (${other.status})`).join(', ') || undefined],
    [
      'progress',
      task.progress &&
        [task.progress.percent === null ? '' : `${task.progress.percent} %`, task.progress.message ?? '']
          .join(' ')
          .trim(),
    ],
    ['summary', task.summary],
    ['error', task.error],
    ['reason', task.reason],
    ['created', localTime(task.createdAt)],
    ['started', localTime(task.startedAt)],
    ['ended', localTime(task.endedAt)],
    ['delivery', task.deliveryStatus],
  ]);
}

function runsOf(runs: readonly RunRecord[]): string {
  const rows = runs.map((run) => [
    run.runId,
    `${run.generation}.${run.attempt}`,
    run.agentId,
    run.outcome ?? 'under way',
    localTime(run.claimedAt),
    localTime(run.endedAt),
    run.error ?? (run.exitCode === undefined ? '' : `exit ${run.exitCode}`),
  ]);
  return table(['RUN', 'NO', 'AGENT', 'OUTCOME', 'CLAIMED', 'ENDED', 'ERROR'], rows, 'No runs yet.');
}

function eventsOf(events: readonly TaskEventRecord[]): string {
  const rows = events.map((event) => [
    localTime(event.at),
    event.type,
    event.runId ?? '',
    event.data === null ? '' : JSON.stringify(event.data),
  ]);
  return table(['AT', 'EVENT', 'RUN', 'DATA'], rows, 'No events.');
}

async function change({ api, show: print }: Context, id: string, verb: 'cancel' | 'retry'): Promise<void> {
  const after = await api().post<Pick<TaskRecord, 'taskId' | 'status' | 'cancelRequestedAt'>>(
    `${path`/api/tasks/${id}`}/${verb}`,
  );
  print(after, () => {
    if (verb === 'retry') return `Task ${id} is ${after.status} again.`;
    return isFinal(after.status)
      ? `Task ${id} is ${after.status}.`
      : `Task ${id} was told to stop; it is ${after.status} until it has.`;
  });
}

function endOf(task: TaskRecord): string {
  return oneLine(task.error ?? task.summary ?? task.progress?.message ?? task.reason ?? '', 60);
}
