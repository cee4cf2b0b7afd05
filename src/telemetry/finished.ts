/** Counts tasks that ended in this process, by final state; the source of `errand_tasks_finished_total`. */
export interface FinishedTasks {
  /** A subscriber of task events: counts once the transaction is on disk, so that a rolled-back end is no end. */
  onTaskEvents(tx: { afterCommit(action: () => void): void }, events: readonly FinishedEvent[]): Promise<void>;
  counts(): ReadonlyMap<string, number>;
}

/** The part of a task event that is looked at. */
export interface FinishedEvent {
  readonly type: string;
  readonly state?: string;
}

export function createFinishedTasks(): FinishedTasks {
  const counts = new Map<string, number>();
  return {
    counts: () => counts,
    async onTaskEvents(tx, events) {
      const states = events.flatMap(({ type, state }) => (type === 'task.ended' && state !== undefined ? [state] : []));
      if (states.length === 0) return;
      tx.afterCommit(() => {
        for (const state of states) counts.set(state, (counts.get(state) ?? 0) + 1);
      });
    },
  };
}
