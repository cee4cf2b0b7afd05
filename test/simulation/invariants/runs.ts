import { isDeepStrictEqual } from 'node:util';
import type { RunTable } from '../../../src/store/tables.ts';
import { isHeld, type TaskState } from '../../../src/tasks/states.ts';
import { CANCEL_GRACE_MS, LEASE_MS } from '../gateway-process.ts';
import type { Rows } from '../rows.ts';
import { firstBreach, type Invariant, type Look } from './invariant.ts';

export const RUN_LAWS: readonly Invariant[] = [
  {
    name: 'a task has one live lease, and it is that of its current run',
    breach: ({ now, changed }) => {
      if (changed.tasks.length === 0) return undefined;
      const live = new Map<number, number>();
      const twice = firstBreach(now.runs.values(), (run) => {
        if ((run.lease_until === null) !== (run.ended_at !== null)) return `run ${run.id} has ended and holds a lease`;
        if (run.lease_until === null) return undefined;
        const other = live.get(run.task_id);
        live.set(run.task_id, run.id);
        return other === undefined ? undefined : `runs ${other} and ${run.id} both hold task ${run.task_id}`;
      });
      return (
        twice ??
        firstBreach(now.tasks.values(), ({ id, status, run_id }) => {
          const held = live.get(id) ?? null;
          const fits = held === run_id && isHeld(status as TaskState) === (held !== null);
          return fits ? undefined : `task ${id} is ${status} in run ${run_id}, but the lease is of run ${held}`;
        })
      );
    },
  },
  {
    name: 'a run that has ended does not change any more',
    breach: ({ before, changed }) =>
      firstBreach(changed.runs, (run) => {
        const old = before.runs.get(run.id);
        if (!old || old.ended_at === null || isDeepStrictEqual(old, run)) return undefined;
        return `run ${old.id} has ended and was changed`;
      }),
  },
  {
    name: 'an end that the gateway has answered for is stored',
    breach: ({ now, world }) =>
      firstBreach(world.memory.answeredEnds, ([id, type]) => {
        const outcome = now.runs.get(id)?.outcome;
        return outcome === type ? undefined : `run ${id} reported ${type} and was answered, its outcome is ${outcome}`;
      }),
  },
  {
    name: 'nothing expires within one lease of a sign of life, a start, a pause or a jump of the clock',
    breach: (look) => firstBreach(newlyEnded(look), (run) => expiryBreach(look, run)),
  },
  {
    name: 'the server cancels only after the grace',
    breach: (look) =>
      firstBreach(newlyEnded(look), (run) => {
        const { memory, time, endedByServer } = look.world;
        if (run.outcome !== 'cancelled' || endedByServer(run) !== 'cancelled') return undefined;
        const since = time.monotonic - Math.max(memory.interruptedAt, memory.cancelSeenAt.get(run.task_id) ?? 0);
        return since >= CANCEL_GRACE_MS ? undefined : `run ${run.id} had ${since} ms to confirm its cancel`;
      }),
  },
  {
    name: 'only the current run of a task speaks for it',
    breach: ({ before, now, changed, world }) =>
      firstBreach(changed.tasks, ({ id: taskId }) => {
        const [task, old] = [now.tasks.get(taskId)!, before.tasks.get(taskId)];
        if (task === old) return undefined;
        return firstBreach(VOICES, (column) => voiceBreach(task, old, column, now, (id) => world.ids.decode(id)));
      }),
  },
];

function newlyEnded({ before, changed }: Look): RunTable[] {
  return changed.runs.filter(
    ({ id, ended_at }) => ended_at !== null && (before.runs.get(id)?.ended_at ?? null) === null,
  );
}

/** A run that was lost while its instance was the valid one can only have expired. */
function expiryBreach({ before, world }: Look, run: RunTable): string | undefined {
  const { memory, time, endedByServer } = world;
  const byServer = endedByServer(run);
  if (byServer === 'timed_out') {
    const since = time.monotonic - memory.interruptedAt;
    return since >= LEASE_MS ? undefined : `run ${run.id} timed out ${since} ms after an interruption`;
  }
  const isReplaced = world.validInstance(run.agent_id) !== run.instance_id;
  if (byServer !== 'lost' || isReplaced || !before.runs.has(run.id)) return undefined;
  const since = time.monotonic - Math.max(memory.interruptedAt, memory.renewedAt.get(run.id) ?? 0);
  return since >= LEASE_MS ? undefined : `run ${run.id} expired after ${since} ms`;
}

/** Columns in which a run leaves a text that names itself and its report's number: `run:seq`. */
const VOICES = ['progress', 'checkpoint', 'summary', 'error'] as const;

type TaskSeen = Rows['tasks'] extends ReadonlyMap<number, infer T> ? T : never;

/** What is new must come from the run that holds the task now or held it at the last look, and be newer than what it had said. */
function voiceBreach(
  task: TaskSeen,
  old: TaskSeen | undefined,
  column: (typeof VOICES)[number],
  now: Rows,
  decode: (publicId: string) => number | undefined,
): string | undefined {
  const said = markIn(task[column]);
  if (!said || task[column] === old?.[column]) return undefined;
  const run = decode(said.runId);
  const was = markIn(old?.[column] ?? null);
  if (was?.runId === said.runId && said.seq < was.seq)
    return `the ${column} of task ${task.id} went back from report ${was.seq} of its run to ${said.seq}`;
  const owner = run === undefined ? undefined : now.runs.get(run);
  const isCurrent = run === task.run_id || run === old?.run_id || isNewestOf(task.id, run, now);
  return owner?.task_id === task.id && isCurrent
    ? undefined
    : `the ${column} of task ${task.id} was written by run ${run}, which does not hold it`;
}

function markIn(text: string | null): { runId: string; seq: number } | undefined {
  const found = text?.match(/([0-9a-z]{4,10}):(\d+)/);
  return found ? { runId: found[1]!, seq: Number(found[2]) } : undefined;
}

/** It may have begun and ended between two looks. */
function isNewestOf(taskId: number, run: number | undefined, { runs }: Rows): boolean {
  let newest: number | undefined;
  for (const { id, task_id } of runs.values()) if (task_id === taskId) newest = id;
  return newest === run;
}
