import { isDeepStrictEqual } from 'node:util';
import type { FlowTable, TaskTable } from '../../../src/store/tables.ts';
import { isFinal, type TaskState } from '../../../src/tasks/states.ts';
import { firstBreach, type Invariant, type Look } from './invariant.ts';

const FLOW_OF: Record<string, string> = {
  succeeded: 'finished',
  failed: 'failed',
  timed_out: 'failed',
  lost: 'failed',
  cancelled: 'cancelled',
  waiting: 'blocked',
};

export const TASK_LAWS: readonly Invariant[] = [
  {
    name: 'a task ends once per generation',
    breach: ({ changed, world }) =>
      firstBreach(changed.tasks, (task) => {
        for (let generation = 1; generation <= task.generation; generation += 1) {
          const ends = world.memory.endings.get(`${task.id}/${generation}`) ?? 0;
          const expected = generation < task.generation || isFinal(task.status as TaskState) ? 1 : 0;
          if (ends !== expected)
            return `task ${task.id} (${task.status}) ended ${ends} times in generation ${generation}, not ${expected}`;
        }
        return undefined;
      }),
  },
  {
    name: 'what is final stays as it is until a person retries it',
    breach: (look) =>
      eachKnown(look, (old, task) => {
        if (!isFinal(old.status as TaskState) || task.generation !== old.generation) return undefined;
        // What became of its message is all that may change.
        const same = { ...old, delivery_status: task.delivery_status };
        return isDeepStrictEqual(same, task) ? undefined : `task ${task.id} was ${old.status} and has changed`;
      }),
  },
  {
    name: 'generations only grow, one at a time, and never by themselves',
    breach: (look) =>
      eachKnown(look, (old, task) =>
        task.generation === old.generation ||
        (task.generation === old.generation + 1 && isFinal(old.status as TaskState))
          ? undefined
          : task.generation > old.generation && look.world.memory.ordered.size > 0
            ? undefined
            : `task ${task.id} went from generation ${old.generation} (${old.status}) to ${task.generation}`,
      ),
  },
  {
    name: 'a cancelled task never starts again',
    breach: (look) =>
      eachKnown(look, (old, task) => {
        if (task.generation !== old.generation || old.cancel_requested_at === null) return undefined;
        if (task.cancel_requested_at === null) return `task ${task.id} forgot that it was cancelled`;
        const wasHeld = old.run_id !== null;
        const fine = isFinal(task.status as TaskState) || (wasHeld && task.run_id === old.run_id);
        return fine ? undefined : `task ${task.id} was cancelled as ${old.status} and is ${task.status} again`;
      }),
  },
  {
    name: 'a cancel that was answered is not forgotten',
    breach: ({ now, world }) =>
      firstBreach(world.memory.cancels, ([id, generation]) => {
        const task = now.tasks.get(id);
        if (!task || task.generation !== generation) return undefined;
        const fine = task.cancel_requested_at !== null || isFinal(task.status as TaskState);
        return fine ? undefined : `the cancel of task ${id} was answered, but it is ${task.status}`;
      }),
  },
  {
    name: 'attempts never exceed the limit, and each is spent once',
    breach: ({ now, changed }) => {
      if (changed.tasks.length === 0) return undefined;
      const counts = attemptsOf(now);
      return firstBreach(changed.tasks, (task) => {
        if (task.attempt > task.max_attempts)
          return `task ${task.id} has ${task.attempt} of ${task.max_attempts} attempts`;
        const { spent, ifGoingOn } = counts.get(`${task.id}/${task.generation}`) ?? { spent: 0, ifGoingOn: 0 };
        // A run that ends its task is no refund, though it was handed back or came against a rate limit.
        const more = task.status === 'cancelled' || task.status === 'failed' ? 1 : 0;
        const fits = [spent, ifGoingOn].some((count) => task.attempt === count || task.attempt === count + more);
        return fits ? undefined : `task ${task.id} counts ${task.attempt} attempts, its runs ${spent}`;
      });
    },
  },
  {
    name: 'what was acknowledged is there',
    breach: ({ now, world }) =>
      firstBreach(world.memory.created, (id) => (now.tasks.has(id) ? undefined : `task ${id} was created and is gone`)),
  },
  {
    name: 'one key makes one task',
    breach: ({ now, changed }) =>
      firstBreach(changed.tasks, ({ id, idempotency }) => {
        if (idempotency === null) return undefined;
        const other = [...now.tasks.values()].find((task) => task.id !== id && task.idempotency === idempotency);
        return other && `tasks ${other.id} and ${id} have the key ${idempotency}`;
      }),
  },
  {
    name: 'a flow follows its task',
    breach: ({ now, changed }) =>
      firstBreach(changed.tasks, (task) => {
        const flow = task.flow_id === null || task.graph === 1 ? undefined : now.flows.get(task.flow_id);
        return flow ? flowBreach(task, flow) : undefined;
      }),
  },
];

function flowBreach(task: TaskTable, flow: FlowTable): string | undefined {
  const expected = FLOW_OF[task.status] ?? 'active';
  // A flow stays blocked after a person has cancelled its question only until the task's end, which is the same transaction.
  const fits = flow.status === expected && (flow.ended_at !== null) === isFinal(task.status as TaskState);
  return fits ? undefined : `task ${task.id} is ${task.status}, its flow ${flow.id} is ${flow.status}`;
}

function eachKnown(
  { before, changed }: Look,
  breach: (old: TaskTable, task: TaskTable) => string | undefined,
): string | undefined {
  return firstBreach(changed.tasks, (task) => {
    const old = before.tasks.get(task.id);
    return old && old !== task ? breach(old, task) : undefined;
  });
}

interface Attempts {
  /** Started runs that count. */
  spent: number;
  /** The same once a person has let it go on: then the last execution it may have is not spent yet. */
  ifGoingOn: number;
}

/** By `task/generation`; runs in their order. */
function attemptsOf({ runs, tasks }: Look['now']): Map<string, Attempts> {
  const found = new Map<string, Attempts>();
  for (const run of runs.values()) {
    const { on_lost, max_attempts } = tasks.get(run.task_id)!;
    const key = `${run.task_id}/${run.generation}`;
    const refunded = run.outcome === 'released' || (run.outcome === 'failed' && run.error_class === 'rate_limited');
    const before = found.get(key)?.ifGoingOn ?? 0;
    const spent = before + (run.started_at !== null && !refunded ? 1 : 0);
    const asked =
      run.outcome === 'blocked' || run.outcome === 'needs_input' || (run.outcome === 'lost' && on_lost === 'ask');
    found.set(key, { spent, ifGoingOn: asked ? Math.min(spent, max_attempts - 1) : spent });
  }
  return found;
}
