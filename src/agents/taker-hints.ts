import type { Clock } from '../clock.ts';
import type { Words } from '../tasks/explain-facts.ts';
import { machineCause } from '../tasks/explain-machines.ts';
import { joined } from '../tasks/explain-words.ts';
import { labelSuffix, placeOf, queueName } from '../tasks/streams.ts';
import type { NewTask } from '../tasks/task.ts';
import type { AgentRegistry } from './registry.ts';

export interface TakerHint {
  /** As in docs/why.md. */
  readonly reason: string;
  readonly text: Words;
}

export interface TakerHintsOptions {
  readonly registry: Pick<AgentRegistry, 'agents' | 'roster'>;
  readonly clock: Clock;
  /** Label sets that templates ask for: agents look for these alone. */
  readonly labelSets: () => readonly Readonly<Record<string, string>>[];
}

/** What a new task asks of its agent. */
export type Wanted = Pick<NewTask, 'pool' | 'agent' | 'runtime' | 'labels'>;

/** Time alone makes an agent offline: what is known of a queue is looked at anew after so long. */
const FRESH_MS = 1_000;
const MAX_QUEUES = 10_000;

/**
 * Says of a task that is being made that nobody can take it as things are: a hint, the task is made all the same. Memory only, and
 * mostly one look into a map, since it is asked for every task.
 */
export class TakerHints {
  readonly #options: TakerHintsOptions;
  readonly #known = new Map<string, TakerHint | undefined>();
  #knownAt = Number.NEGATIVE_INFINITY;
  #changes = -1;

  constructor(options: TakerHintsOptions) {
    this.#options = options;
  }

  /** Undefined where somebody who is there may take it, even if he is busy. */
  hintFor(wanted: Wanted): TakerHint | undefined {
    const { clock, registry } = this.#options;
    const now = clock.now();
    const isStale = Math.abs(now - this.#knownAt) >= FRESH_MS || this.#changes !== registry.roster.changes;
    if (isStale || this.#known.size >= MAX_QUEUES) {
      this.#known.clear();
      this.#knownAt = now;
      this.#changes = registry.roster.changes;
    }
    const queue = queueName(wanted);
    if (!this.#known.has(queue)) this.#known.set(queue, this.#look(queue, wanted, now));
    return this.#known.get(queue);
  }

  #look(queue: string, { runtime, labels }: Wanted, now: number): TakerHint | undefined {
    const suffix = labelSuffix(labels);
    const isSought = suffix === '' || this.#options.labelSets().some((set) => labelSuffix(set) === suffix);
    const cause = machineCause({
      task: { place: placeOf(queue), runtime, labels: labels ?? {}, isSought },
      agents: this.#options.registry.agents(),
      place: null,
      now,
    });
    return cause && { reason: cause.reason, text: joined(cause.text, cause.next)! };
  }
}
