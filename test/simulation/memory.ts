import type { TaskEvent } from '../../src/tasks/task.ts';
import type { BreakerRow, PausedGate, Rows } from './rows.ts';

/** What a caller was promised, and when things happened that the rows do not tell: the model beside the store. */
export class Memory {
  /** How often each generation of a task has ended, by its committed events: `task/generation`. */
  readonly endings = new Map<string, number>();
  /** Tasks whose creation was answered. */
  readonly created = new Set<number>();
  /** Idempotency keys that were used, with the one task each may ever make. */
  readonly keys = new Map<string, { submission: Record<string, unknown>; taskId: number | null }>();
  /** Ends of runs that their agent may forget, because the gateway has answered for them. */
  readonly answeredEnds = new Map<number, string>();
  /** Tasks whose cancel was answered, with the generation it was for. */
  readonly cancels = new Map<number, number>();
  /** Tasks for which a person's order is on its way: nobody gives a second one meanwhile. */
  readonly ordered = new Set<number>();
  /** By run, monotonic: when its lease was last seen to change. */
  readonly renewedAt = new Map<number, number>();
  /** By task, monotonic: when its cancel was first seen. */
  readonly cancelSeenAt = new Map<number, number>();
  /** By task, monotonic: since when it is seen to be queued and due. */
  readonly dueSince = new Map<number, number>();
  /** Of what the chat platforms received: how much was looked at, which messages, and the newest of each chat. */
  receiptsSeen = 0;
  readonly received = new Set<number>();
  readonly lastReceipt = new Map<string, number>();
  /** What was paused at the last look, and, monotonic, when something last was. */
  paused: readonly PausedGate[] = [];
  pausedAt = Number.NEGATIVE_INFINITY;
  /** The breaker as it was at the last look. */
  breaker: BreakerRow | undefined;
  /** Monotonic: the last start, pause or jump of the clock. */
  interruptedAt = 0;
  /** By flow, monotonic: since when its deadline is seen to be over and the flow is not. */
  readonly overdueSince = new Map<number, number>();
  /** By key of an effect: the runs that were told to go, with what became of that. */
  readonly told = new Map<string, Map<number, 'told' | 'acted' | 'marked' | 'given back'>>();
  /** Keys of effects of which a run was answered that they are done, and by which run. */
  readonly done = new Map<string, number>();
  /** By key of an effect: how often a person may have said that it did not take place. */
  readonly again = new Map<string, number>();
  /** By line, then by owner: the starts of each other owner since this one waits without a start of its own. */
  readonly overtaken = new Map<string, Map<string, Map<string, number>>>();
  /** Monotonic: since when nothing came between turns. */
  turnsSince = 0;
  /** Since the last jump of the clock the sweeper has looked at it. */
  jumpSeen = true;

  onTaskEvents(events: readonly TaskEvent[]): void {
    for (const event of events) {
      if (event.type !== 'task.ended') continue;
      const key = `${event.id}/${event.generation}`;
      this.endings.set(key, (this.endings.get(key) ?? 0) + 1);
    }
  }

  /** Takes note of what changed between two looks at the rows. */
  observe(before: Rows, now: Rows, monotonic: number, wall: number): void {
    for (const run of now.runs.values()) {
      if (run.lease_until !== null && run.lease_until !== before.runs.get(run.id)?.lease_until)
        this.renewedAt.set(run.id, monotonic);
    }
    for (const task of now.tasks.values()) {
      if (task.cancel_requested_at === null) this.cancelSeenAt.delete(task.id);
      else if (!this.cancelSeenAt.has(task.id)) this.cancelSeenAt.set(task.id, monotonic);
      if (task.status !== 'queued' || task.run_at > wall) this.dueSince.delete(task.id);
      else if (!this.dueSince.has(task.id)) this.dueSince.set(task.id, monotonic);
    }
    for (const { id, ended_at, deadline_at } of now.flows.values()) {
      const isOver = ended_at === null && deadline_at !== null && deadline_at <= wall;
      if (!isOver) this.overdueSince.delete(id);
      else if (!this.overdueSince.has(id)) this.overdueSince.set(id, monotonic);
    }
  }
}
