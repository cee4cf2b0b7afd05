import { isDeepStrictEqual } from 'node:util';
import type { RunTable } from '../../../src/store/tables.ts';
import { placeOf } from '../../../src/tasks/streams.ts';
import { firstBreach, type Invariant, type Look } from './invariant.ts';

/** Of the templates of a simulation (`world.ts`): runs at once, and starts at one moment. */
const AT_ONCE: Readonly<Record<string, number>> = { single: 1 };
const STARTS: Readonly<Record<string, number>> = { rated: 1 };
const BEHIND_BREAKER: Readonly<Record<string, string>> = { guarded: 'site', impatient: 'site' };
const DEAD = new Set(['failed', 'timed_out', 'lost']);

export const LIMIT_LAWS: readonly Invariant[] = [
  {
    name: 'no more runs at once than a template or a serial key allows',
    breach: ({ now, changed, world }) => {
      if (changed.runs.length === 0) return undefined;
      const live = new Map<string, number>();
      return firstBreach(now.runs.values(), (run) => {
        if (run.lease_until === null) return undefined;
        const task = now.tasks.get(run.task_id)!;
        const serial = task.template === 'serial' ? world.serialOf(task) : '';
        const scope = serial === '' ? task.template : serial;
        const count = (live.get(scope) ?? 0) + 1;
        live.set(scope, count);
        const limit = serial === '' ? (AT_ONCE[task.template] ?? Infinity) : 1;
        return count <= limit ? undefined : `${count} runs of ${scope} at once, the last of them run ${run.id}`;
      });
    },
  },
  {
    name: 'no more starts at one moment than the rate of a template allows',
    breach: (look) => {
      const starts = new Map<string, number>();
      return firstBreach(newRuns(look), (run) => {
        const { template } = look.now.tasks.get(run.task_id)!;
        const key = `${template} at ${run.claimed_at}`;
        const count = (starts.get(key) ?? 0) + 1;
        starts.set(key, count);
        return count <= (STARTS[template] ?? Infinity) ? undefined : `${count} runs of ${key}`;
      });
    },
  },
  {
    name: 'nothing starts behind an open breaker',
    breach: (look) => {
      if (look.changed.runs.length === 0) return undefined;
      const { memory, time, breaker } = look.world;
      const [before, now] = [memory.breaker, breaker('site')];
      memory.breaker = now;
      const wasOpen = before?.state === 'open' && before.until_at !== null && before.until_at > time.now();
      if (!wasOpen || now?.state !== 'open' || now.opened_at !== before.opened_at) return undefined;
      return firstBreach(newRuns(look), (run) => {
        const { template } = look.now.tasks.get(run.task_id)!;
        return template in BEHIND_BREAKER ? `run ${run.id} of ${template} started behind an open breaker` : undefined;
      });
    },
  },
  {
    name: 'nothing of what a person has paused starts, nor anything while the gateway is draining',
    breach: (look) => {
      const { memory, time } = look.world;
      const [before, now] = [memory.paused, look.world.paused()];
      memory.paused = now;
      if (now.length > 0 || before.length > 0) memory.pausedAt = time.monotonic;
      if (look.changed.runs.length === 0) return undefined;
      const since = now.filter((gate) => before.some((old) => isDeepStrictEqual(old, gate)));
      return firstBreach(newRuns(look), (run) => {
        const task = look.now.tasks.get(run.task_id)!;
        const gate = since.find(({ kind, name }) => name === NAME_IN[kind]!(task));
        return gate && `run ${run.id} of ${task.template} started although ${gate.kind} ${gate.name} is paused`;
      });
    },
  },
  {
    name: 'a task that died has one dead letter, until a person tries it again',
    breach: ({ changed, world }) =>
      firstBreach(changed.tasks, ({ id, status, generation }) => {
        const letter = world.deadLetter(id);
        const isDead = letter?.state === 'dead';
        if (isDead !== DEAD.has(status)) return `task ${id} is ${status}, its dead letter is ${letter?.state}`;
        return isDead && letter.generation !== generation
          ? `the dead letter of task ${id} is of generation ${letter.generation}, not ${generation}`
          : undefined;
      }),
  },
];

/** What the task is called in each kind of gate; all of them stand in one lane. */
const NAME_IN: Readonly<Record<string, (task: { template: string; queue: string }) => string>> = {
  gateway: () => '*',
  lane: () => 'main',
  template: ({ template }) => template,
  pool: ({ queue }) => placeOf(queue),
};

function newRuns({ before, changed }: Look): RunTable[] {
  return changed.runs.filter(({ id }) => !before.runs.has(id));
}
