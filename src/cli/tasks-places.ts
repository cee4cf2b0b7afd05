import { Argument, type Command } from 'commander';
import { NOTIFY_POLICIES, PRIORITIES } from '../tasks/states.ts';
import type { TaskRecord } from '../tasks/task.ts';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';

type Placed = Pick<TaskRecord, 'taskId' | 'status' | 'priority' | 'notifyPolicy'>;

/** `errand tasks pause`, `resume`, `priority`, `notify` */
export function placeCommands(tasks: Command, act: Act): void {
  tasks
    .command('pause <task>')
    .description('set a queued task aside; its time to live stands still')
    .option('--why <text>', 'kept in the audit')
    .addHelpText('after', '\nExample:\n  errand tasks pause k3f9 --why "the room is taken"')
    .action(act((context, id: string, options: { why?: string }) => change(context, id, 'pause', options)));
  tasks
    .command('resume <task>')
    .description('let a paused task go on, in its old place')
    .option('--why <text>', 'kept in the audit')
    .addHelpText('after', '\nExample:\n  errand tasks resume k3f9')
    .action(act((context, id: string, options: { why?: string }) => change(context, id, 'resume', options)));
  tasks
    .command('priority <task>')
    .addArgument(new Argument('<priority>').choices(PRIORITIES))
    .description('raise or lower the priority of a task that no agent holds')
    .option('--why <text>', 'kept in the audit')
    .addHelpText('after', '\nExample:\n  errand tasks priority k3f9 high')
    .action(
      act((context, id: string, priority: string, options: { why?: string }) =>
        change(context, id, 'priority', { priority, ...options }),
      ),
    );
  tasks
    .command('notify <task>')
    .addArgument(new Argument('<policy>').choices(NOTIFY_POLICIES))
    .description('change what its conversation is told of a task; what was sent stays said')
    .option('--why <text>', 'kept in the audit')
    .addHelpText('after', '\nExample:\n  errand tasks notify k3f9 silent')
    .action(
      act((context, id: string, policy: string, options: { why?: string }) =>
        change(context, id, 'notify', { policy, ...options }),
      ),
    );
}

async function change({ api, show }: Context, id: string, verb: string, body: object): Promise<void> {
  const task = await api().post<Placed>(`${path`/api/tasks/${id}`}/${verb}`, body);
  const said: Record<string, string> = {
    priority: `Task ${id} has priority ${task.priority}; it is ${task.status}.`,
    notify: `Of task ${id} is told: ${task.notifyPolicy}; it is ${task.status}.`,
  };
  show(task, () => said[verb] ?? `Task ${id} is ${task.status}.`);
}
