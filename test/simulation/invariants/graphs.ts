import type { TaskTable } from '../../../src/store/tables.ts';
import { isFinal, type TaskState } from '../../../src/tasks/states.ts';
import type { NeedRow } from '../rows.ts';
import { firstBreach, type Invariant, type Look } from './invariant.ts';

/** Time passes in pieces of up to 8 seconds, and the sweeper may need one of them to notice. */
const MOMENT_MS = 10_000;

export const GRAPH_LAWS: readonly Invariant[] = [
  {
    name: 'a task starts after what it needs',
    breach: ({ before, now, changed, world }) =>
      firstBreach(changed.runs, (run) => {
        if (before.runs.has(run.id) || now.tasks.get(run.task_id)?.graph !== 1) return undefined;
        const needs = world.needsAround(run.task_id).filter(({ task_id }) => task_id === run.task_id);
        return firstBreach(needs, (need) => {
          const on = now.tasks.get(need.on_task_id)!;
          const hasEnded = isFinal(on.status as TaskState) || on.generation > 1;
          const isMet = need.condition === 'always' ? hasEnded : on.status === 'succeeded';
          return isMet ? undefined : `run ${run.id} started task ${run.task_id}, which needs ${on.id} (${on.status})`;
        });
      }),
  },
  {
    name: 'a failed need cancels at once what needs its success',
    breach: (look) =>
      eachNeed(look, ({ condition }, task, on) => {
        const isDoomed = condition === 'success' && isFinal(on.status as TaskState) && on.status !== 'succeeded';
        return !isDoomed || isFinal(task.status as TaskState)
          ? undefined
          : `task ${task.id} is ${task.status}, but ${on.id}, whose success it needs, is ${on.status}`;
      }),
  },
  {
    name: 'what waits for others waits for one that is still to come',
    breach: (look) => {
      const waiting = new Set<TaskTable>();
      const open = new Set<TaskTable>();
      eachNeed(look, (_need, task) => {
        if (task.status === 'waiting' && task.reason === 'needs') waiting.add(task);
        return undefined;
      });
      for (const task of waiting)
        for (const { task_id, on_task_id, condition, met } of look.world.needsAround(task.id)) {
          const on = look.now.tasks.get(on_task_id)!;
          const isMet =
            met === 1 || (condition === 'always' ? isFinal(on.status as TaskState) : on.status === 'succeeded');
          if (task_id === task.id && !isMet) open.add(task);
        }
      const idle = [...waiting].find((task) => !open.has(task));
      return idle && `task ${idle.id} waits for others, and none of them is to come`;
    },
  },
  {
    name: 'a graph is over when all of it is',
    breach: ({ now, changed }) =>
      firstBreach(changed.tasks, ({ graph, flow_id }) => {
        if (graph !== 1 || flow_id === null) return undefined;
        const flow = now.flows.get(flow_id)!;
        const isOver = [...now.tasks.values()].every(
          (task) => task.flow_id !== flow_id || isFinal(task.status as TaskState),
        );
        return isOver === (flow.ended_at !== null)
          ? undefined
          : `flow ${flow_id} is ${flow.status}, its tasks are ${isOver ? '' : 'not '}over`;
      }),
  },
  {
    name: 'past the deadline of a graph nothing of it is left but what was told to stop',
    breach: ({ now, world: { memory, time, gateway } }) => {
      if (!gateway || gateway.dead || time.monotonic - memory.interruptedAt < MOMENT_MS) return undefined;
      return firstBreach(memory.overdueSince, ([flowId, since]) => {
        if (time.monotonic - since < MOMENT_MS) return undefined;
        const left = [...now.tasks.values()].find(
          (task) => task.flow_id === flowId && !isFinal(task.status as TaskState) && task.cancel_requested_at === null,
        );
        return left && `the deadline of flow ${flowId} is over, and its task ${left.id} is ${left.status}`;
      });
    },
  },
];

/** The needs around every task of a graph that has changed. */
function eachNeed(
  { now, changed, world }: Look,
  breach: (need: NeedRow, task: TaskTable, on: TaskTable) => string | undefined,
): string | undefined {
  return firstBreach(changed.tasks, ({ id, graph }) =>
    graph !== 1
      ? undefined
      : firstBreach(world.needsAround(id), (need) =>
          breach(need, now.tasks.get(need.task_id)!, now.tasks.get(need.on_task_id)!),
        ),
  );
}
