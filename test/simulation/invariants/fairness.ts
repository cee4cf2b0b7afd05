import type { TaskTable } from '../../../src/store/tables.ts';
import { FREE_TEMPLATES } from '../world.ts';
import type { Invariant, Look } from './invariant.ts';

/** Turns that another owner may have while one waits: one that was due, one of a claim that is rolled back, one of a line read anew. */
const TURNS = 3;
const RELOAD_MS = 30_000;

export const FAIRNESS_LAWS: readonly Invariant[] = [
  {
    name: 'an owner whose task is due has its turn before another has several',
    breach: (look) => {
      const { memory, time, gateway } = look.world;
      const disturbed = !gateway || gateway.dead || gateway.store.mishap !== null;
      const since = Math.max(memory.interruptedAt, memory.pausedAt);
      if (disturbed || since >= memory.turnsSince) {
        memory.overtaken.clear();
        memory.turnsSince = time.monotonic + 1;
        return undefined;
      }
      if (look.changed.tasks.length === 0 && look.changed.runs.length === 0) return undefined;
      return countTurns(look, TURNS + Math.floor((time.monotonic - memory.turnsSince) / RELOAD_MS));
    },
  },
];

type Seen = TaskTable & { queue: string };
const lineOf = ({ queue, priority }: Seen) => `${queue} ${priority}`;

function countTurns({ before, now, changed, world }: Look, most: number): string | undefined {
  const { overtaken } = world.memory;
  const started = changed.runs
    .filter(({ id }) => !before.runs.has(id))
    .map(({ task_id }) => now.tasks.get(task_id)!)
    .filter(({ template }) => template !== 'serial');
  const waiting = waitingOwners(now.tasks.values(), world.time.now());
  // Only those who were waiting before these starts, and still are, can have been overtaken by them.
  for (const [line, owners] of overtaken)
    for (const owner of owners.keys()) if (!waiting.get(line)?.has(owner)) owners.delete(owner);
  for (const task of started) overtaken.get(lineOf(task))?.delete(task.session_key ?? '');
  for (const task of started) {
    for (const [owner, others] of overtaken.get(lineOf(task)) ?? []) {
      const by = task.session_key ?? '';
      const count = (others.get(by) ?? 0) + 1;
      others.set(by, count);
      if (count > most)
        return `${owner || 'nobody'} waits in ${lineOf(task)}, and ${by || 'nobody'} has had ${count} turns`;
    }
  }
  for (const [line, owners] of waiting) {
    const known = overtaken.get(line) ?? new Map<string, Map<string, number>>();
    overtaken.set(line, known);
    for (const owner of owners) if (!known.has(owner)) known.set(owner, new Map());
  }
  return undefined;
}

/** By line: who has a task there that is due and that nothing holds back but its turn. */
function waitingOwners(tasks: Iterable<Seen>, now: number): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const task of tasks) {
    if (task.status !== 'queued' || task.run_at > now || !FREE_TEMPLATES.has(task.template)) continue;
    const owners = found.get(lineOf(task)) ?? new Set<string>();
    found.set(lineOf(task), owners.add(task.session_key ?? ''));
  }
  return found;
}
