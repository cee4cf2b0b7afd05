import type { Cause, WhyFacts } from './explain-facts.ts';
import { holdCause } from './explain-holds.ts';
import { machineCause } from './explain-machines.ts';
import { both, capital, ended, inTime, lineWords, quoted } from './explain-words.ts';
import { reasonWords } from './reason-words.ts';

/**
 * Why a queued task has not started. First what only a person can change (pauses, missing machines), then what time changes (the
 * latest first, it decides), then what the end of other tasks changes. What is not due yet is held by pauses and by time alone:
 * machines that are busy now may be free then.
 */
export function queuedCauses(facts: WhyFacts): readonly Cause[] {
  const { task, now, holds } = facts;
  if (task.expiresAt !== null && task.expiresAt <= now) return [EXPIRING];
  const held = holds.map((hold) => holdCause(hold, now));
  const ofKind = (kind: (typeof held)[number]['change']) =>
    held.filter(({ change }) => change === kind).map(({ cause }) => cause);
  if (task.runAt > now) {
    const isLong = ({ reason }: Cause) => reason === 'breaker_open';
    return [...ofKind('person'), ...latestFirst([later(facts), ...ofKind('time').filter(isLong)])];
  }
  const machines = machineCause(facts);
  const isBusy = machines?.reason === 'machines_busy';
  const causes = [
    ...ofKind('person'),
    ...(machines && !isBusy ? [machines] : []),
    ...latestFirst(ofKind('time')),
    ...ofKind('others'),
    ...(machines && isBusy ? [machines] : []),
  ];
  return causes.length > 0 ? causes : [inLine(facts)];
}

const EXPIRING: Cause = {
  reason: 'expiring',
  text: both('It has waited too long and is given up in a moment.', '等待时间过长，即将放弃。'),
};

function latestFirst(causes: readonly Cause[]): readonly Cause[] {
  return [...causes].sort((a, b) => b.untilAt! - a.untilAt!);
}

/** Asked for later, or the pause before another try. */
function later({ task, now }: WhyFacts): Cause {
  const left = inTime(task.runAt - now);
  const untilAt = task.runAt;
  const why = both(reasonWords('en', task.reason) ?? '', reasonWords('zh', task.reason) ?? '');
  if (task.reason === null || why.en === '')
    return {
      reason: 'scheduled',
      text: both(`It is to start later: ${left.en}.`, `定于 ${left.zh}开始。`),
      untilAt,
    };
  if (task.reason === 'rate_limited')
    return {
      reason: 'rate_limit_wait',
      text: both(`${capital(why).en}; it is tried again ${left.en}.`, `${why.zh}，${left.zh}再试。`),
      next: both('This does not count as a try.', '这次不计入尝试次数。'),
      untilAt,
    };
  // The program's own words say more than that a fault has passed.
  const what = task.reason === 'transient_error' && task.said !== '' ? both(task.said, task.said) : why;
  return {
    reason: 'retry_wait',
    text: both(
      `Try ${task.attempt} of ${task.maxAttempts} went wrong${ended(quoted(what.en)).en} The next one is ${left.en}.`,
      `第 ${task.attempt} 次尝试（共 ${task.maxAttempts} 次）未成功${ended(quoted(what.zh)).zh}${left.zh}再试。`,
    ),
    untilAt,
  };
}

/** Nothing keeps it: a machine is free and takes what is before it first. */
function inLine({ place }: WhyFacts): Cause {
  if (place === null || place.position === 1)
    return { reason: 'next', text: both('It is next and starts in a moment.', '马上开始。') };
  const where = lineWords(place);
  return {
    reason: 'in_line',
    text: both(`It is ${where.en}.`, `${where.zh}。`),
    next: both('It starts when those before it have started.', '排在前面的开始后就轮到它。'),
  };
}
