import { endCause } from './explain-ends.ts';
import type { Cause, WhyFacts, Words } from './explain-facts.ts';
import { heldCause, waitingCause } from './explain-held.ts';
import { queuedCauses } from './explain-queued.ts';
import { both, inTime, joined } from './explain-words.ts';
import { isFinal, isHeld, type TaskState } from './states.ts';

/** Why a task has not finished and what would change that, or how it ended and why; for a person, on a phone. */
export interface Explanation extends Cause {
  readonly status: TaskState;
  /** What else keeps it, in the order in which it would have to go; absent where the text says it all. */
  readonly others?: Pick<Cause, 'reason' | 'text'>[];
}

/**
 * Says it in one or two sentences of both languages. Of several causes the one that must go first is told, the others are counted.
 * Pure: whoever asks brings the facts.
 */
export function explain(facts: WhyFacts): Explanation {
  const [first, ...others] = causesOf(facts);
  const next = joined(first!.next, timeToLive(facts));
  return {
    status: facts.task.status,
    ...first!,
    ...(next === undefined ? {} : { next }),
    ...(others.length === 0
      ? {}
      : {
          text: joined(first!.text, alsoHeld(others.length))!,
          others: others.map(({ reason, text }) => ({ reason, text })),
        }),
  };
}

/** At least one, the most important first. */
function causesOf(facts: WhyFacts): readonly Cause[] {
  const { status } = facts.task;
  if (isFinal(status)) return [endCause(facts, status)];
  if (isHeld(status)) return [heldCause(facts)];
  if (status === 'queued') return queuedCauses(facts);
  if (status === 'waiting') return [waitingCause(facts)];
  return [PAUSED];
}

const PAUSED: Cause = {
  reason: 'paused',
  text: both('A person has set it aside.', '已被人工暂停。'),
  next: both('It starts after it is resumed.', '恢复后才会开始。'),
};

function alsoHeld(count: number): Words {
  return both(`There ${count === 1 ? 'is 1 more reason' : `are ${count} more reasons`}.`, `另外还有 ${count} 个原因。`);
}

/** A paused task waits for its person, however long; one that is held is not given up. */
function timeToLive({ task: { status, expiresAt }, now }: WhyFacts): Words | undefined {
  if ((status !== 'queued' && status !== 'waiting') || expiresAt === null || expiresAt <= now) return undefined;
  const left = inTime(expiresAt - now);
  return both(`If nothing changes, it is given up ${left.en}.`, `若一直如此，${left.zh}将放弃。`);
}
