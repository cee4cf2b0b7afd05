import { type Command, Option } from 'commander';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';
import { fields, localTime, table } from './table.ts';
import { nextPage } from './tasks.ts';

interface Flow {
  flowId: string;
  sessionKey?: string;
  status: string;
  goal: string;
  blockedSummary?: string;
  createdAt: number;
  endedAt?: number;
  deadlineAt?: number;
}

/** `errand flows …` */
export function flowsCommands(program: Command, act: Act): void {
  const flows = program
    .command('flows')
    .description('look at flows: what conversations have asked for; cancel and retry them');
  flows
    .command('list')
    .description('list flows, the newest first')
    .addOption(
      new Option('--status <state>', 'only in this state').choices([
        'active',
        'waiting',
        'blocked',
        'finished',
        'failed',
        'cancelled',
      ]),
    )
    .option('--session <key>', 'only of this conversation')
    .option('--limit <n>', 'at most so many (1 to 200, default 50)')
    .option('--cursor <cursor>', 'the next page, as the last one told')
    .addHelpText('after', '\nExample:\n  errand flows list --status active')
    .action(act(list));
  flows
    .command('show <flow>')
    .description('show one flow with its tasks; with a session key, the newest of that conversation')
    .addHelpText('after', '\nExample:\n  errand flows show q7xw')
    .action(act(show));
  flows
    .command('cancel <flow>')
    .description('cancel what is left of a flow; what runs is told to stop')
    .addHelpText('after', '\nExample:\n  errand flows cancel q7xw')
    .action(act(cancel));
  flows
    .command('retry <flow>')
    .description('run again what failed of a failed flow, or what was called off of a cancelled one')
    .addHelpText('after', '\nExample:\n  errand flows retry q7xw')
    .action(act(retry));
}

async function list(
  { api, show: print }: Context,
  options: { status?: string; session?: string; limit?: string; cursor?: string },
): Promise<void> {
  const page = await api().get<{ flows: Flow[]; next?: string }>('/api/flows', { ...options });
  print(page, () => {
    const rows = page.flows.map((flow) => [
      flow.flowId,
      flow.status,
      localTime(flow.createdAt),
      flow.sessionKey ?? '',
      flow.goal,
    ]);
    return [table(['FLOW', 'STATUS', 'CREATED', 'SESSION', 'GOAL'], rows, 'No flows.'), ...nextPage(page.next)].join(
      '\n',
    );
  });
}

async function cancel({ api, show: print }: Context, id: string): Promise<void> {
  const flow = await api().post<Flow>(path`/api/flows/${id}/cancel`);
  print(flow, () =>
    flow.endedAt === undefined
      ? `Flow ${id} is being cancelled; what runs was told to stop.`
      : `Flow ${id} is ${flow.status}.`,
  );
}

async function retry({ api, show: print }: Context, id: string): Promise<void> {
  const flow = await api().post<Flow & { retried: string[] }>(path`/api/flows/${id}/retry`);
  print(flow, () => `Flow ${id} goes on. Tasks that run again: ${flow.retried.join(', ')}.`);
}

async function show({ api, show: print }: Context, id: string): Promise<void> {
  const flow = await api().get<Flow & { tasks: { taskId: string; status: string }[] }>(path`/api/flows/${id}`);
  print(flow, () => {
    const about = fields([
      ['flow', flow.flowId],
      ['status', flow.status],
      ['goal', flow.goal],
      ['session', flow.sessionKey],
      ['blocked', flow.blockedSummary],
      ['created', localTime(flow.createdAt)],
      ['ended', localTime(flow.endedAt)],
      ['deadline', localTime(flow.deadlineAt)],
    ]);
    return `${about}\n\n${table(
      ['TASK', 'STATUS'],
      flow.tasks.map((task) => [task.taskId, task.status]),
      'No tasks.',
    )}`;
  });
}
