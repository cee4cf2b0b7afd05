import type { Cause, WhyFacts, WhyRun, Words } from './explain-facts.ts';
import { needsCause } from './explain-needs.ts';
import { both, ended, inTime, lasting, quoted } from './explain-words.ts';
import { reasonWords } from './reason-words.ts';

/** Why a task that an agent holds, or that waits for something, has not finished. */

/** Of a task that an agent holds: it works, or it does not answer, or it is being stopped. */
export function heldCause(facts: WhyFacts): Cause {
  const { task, run, now, leaseMs } = facts;
  if (run === null) return STARTING;
  if (task.cancelRequestedAt !== null) return cancelling(facts, run, task.cancelRequestedAt);
  const silentMs = now - (run.leaseUntil - leaseMs);
  if (silentMs >= leaseMs / 2) return silent(facts, run, silentMs);
  return run.startedAt === null ? starting(run) : running(facts, run, run.startedAt);
}

/** Of a task that waits: what for. */
export function waitingCause({ task, needs, effects }: WhyFacts): Cause {
  if (effects.length > 0) return effectCause(effects);
  switch (task.reason) {
    case 'needs_input':
      return { reason: 'question', text: asks(task.said), next: GO_ON };
    case 'lost_ask':
      return { reason: 'lost_ask', text: lostWords(), next: RUN_AGAIN };
    case 'needs':
      return needsCause(needs);
    default:
      return { reason: 'blocked', text: blocked(task.said), next: GO_ON };
  }
}

/** The run was not read: it ended in that very moment. */
const STARTING: Cause = {
  reason: 'starting',
  text: both('A machine has taken it and is about to start it.', '已被一台机器领取，即将开始。'),
};

const GO_ON = both('It goes on when it is retried, and ends when it is cancelled.', '重试后会继续，取消则结束。');
const RUN_AGAIN = both('Retry it to run it again, or cancel it.', '可以重试让它重新运行，或取消。');

function starting({ agentId }: WhyRun): Cause {
  return {
    reason: 'starting',
    text: both(`Machine ${agentId} has taken it and is about to start it.`, `机器 ${agentId} 已领取，即将开始。`),
  };
}

function running({ task, now }: WhyFacts, { agentId, deadlineAt, sign }: WhyRun, startedAt: number): Cause {
  const time = lasting(now - startedAt);
  const far = task.percent === null ? '' : `${Math.round(task.percent)} %`;
  const untilAt = startedAt + task.timeoutMs;
  if (untilAt <= now) return overtime(agentId, deadlineAt, now);
  const left = inTime(untilAt - now);
  const life = sign ? signOfLife(sign, now) : { en: '', zh: '' };
  return {
    reason: 'running',
    text: both(
      `It has been running on machine ${agentId} for ${time.en}${far && `, ${far} done`}.${life.en}`,
      `正在机器 ${agentId} 上运行，已 ${time.zh}${far && `，完成 ${far}`}。${life.zh}`,
    ),
    next: both(`It is stopped ${left.en} at the latest.`, `最迟 ${left.zh}停止。`),
    untilAt,
  };
}

/** It has said nothing for long: what its machine has seen instead. */
function signOfLife({ at, activity }: NonNullable<WhyRun['sign']>, now: number): Words {
  const ago = lasting(now - at);
  const { en, zh } = ACTIVITIES[activity];
  return both(` It says nothing; ${ago.en} ago ${en}.`, `它没有新消息；${ago.zh}前${zh}。`);
}

const ACTIVITIES: Readonly<Record<NonNullable<WhyRun['sign']>['activity'], Words>> = {
  busy: both('its processes were busy', '其进程正忙'),
  idle: both('its processes were alive and waiting', '其进程存活，正在等待'),
  stopped: both('its processes were stopped', '其进程已被挂起'),
  gone: both('none of its processes was left', '其进程已不存在'),
};

function overtime(agentId: string, deadlineAt: number, now: number): Cause {
  const left = inTime(deadlineAt - now);
  return {
    reason: 'time_limit_over',
    text: both(`Its time is over; machine ${agentId} is to stop it.`, `运行时间已到，机器 ${agentId} 正在停止它。`),
    next: both(`It is ended ${left.en} at the latest.`, `最迟 ${left.zh}结束。`),
    untilAt: Math.max(deadlineAt, now),
  };
}

function silent({ task, now }: WhyFacts, { agentId, leaseUntil, startedAt }: WhyRun, silentMs: number): Cause {
  const time = lasting(silentMs);
  const left = inTime(leaseUntil - now);
  const follows = afterSilence(task, startedAt !== null);
  return {
    reason: 'machine_silent',
    text: both(
      `Machine ${agentId}, which holds it, has not answered for ${time.en}.`,
      `执行它的机器 ${agentId} 已 ${time.zh}没有响应。`,
    ),
    next: both(`If it stays silent, ${follows.en} ${left.en}.`, `若仍无响应，${left.zh}${follows.zh}。`),
    untilAt: Math.max(leaseUntil, now),
  };
}

function afterSilence({ onLost, attempt, maxAttempts }: WhyFacts['task'], isStarted: boolean): Words {
  if (onLost === 'ask') return both('a person is asked what to do', '将请人工决定');
  const isLast = isStarted && attempt >= maxAttempts;
  if (onLost === 'fail' || isLast) return both('it ends as lost', '将按失联结束');
  return both('another try is made', '将再试一次');
}

function cancelling({ now, cancelGraceMs }: WhyFacts, { agentId }: WhyRun, askedAt: number): Cause {
  const time = lasting(now - askedAt);
  const untilAt = Math.max(askedAt + cancelGraceMs, now);
  const left = inTime(untilAt - now);
  return {
    reason: 'cancelling',
    text: both(
      `It was told to stop ${time.en} ago; machine ${agentId} has not confirmed it yet.`,
      `${time.zh}前已要求停止，机器 ${agentId} 尚未确认。`,
    ),
    next: both(`It is ended ${left.en} at the latest.`, `最迟 ${left.zh}结束。`),
    untilAt,
  };
}

function asks(said: string): Words {
  return said === '' ? both('It has a question.', '它有个问题。') : both(`It asks: ${said}`, `它问：${said}`);
}

function blocked(said: string): Words {
  const what = quoted(said);
  return ended(both(`It cannot go on without a person${what.en}`, `需要人工处理才能继续${what.zh}`));
}

function lostWords(): Words {
  const why = both(reasonWords('en', 'lost_ask')!, reasonWords('zh', 'lost_ask')!);
  return both(`It needs a decision: ${why.en}.`, `需要人工决定：${why.zh}。`);
}

/** The type alone is told: a key may hold what the task was asked to do. */
function effectCause(effects: readonly string[]): Cause {
  const [type] = effects;
  const more = effects.length - 1;
  return {
    reason: 'effect_uncertain',
    text: both(
      `Nobody knows whether its step “${type}” has taken place${more > 0 ? `, nor ${more} more` : ''}.`,
      `无法确定步骤“${type}”是否已经完成${more > 0 ? `，另有 ${more} 个也不确定` : ''}。`,
    ),
    next: both('It goes on when an operator says whether it has.', '管理员确认后会继续。'),
  };
}
