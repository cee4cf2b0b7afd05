import { oneLine } from '../text.ts';
import type { BreakerReason } from './breaker-state.ts';
import type { Cause, Words } from './explain-facts.ts';
import { both, inTime, placeName } from './explain-words.ts';
import type { GateKind } from './gate-settings.ts';
import type { Hold } from './gates.ts';

/** What a hold of a stream means for a task in it. */
export interface HeldBack {
  readonly cause: Cause;
  /** Who or what changes it: a person, time (`untilAt` is there), or the end of other tasks. */
  readonly change: 'person' | 'time' | 'others';
}

/** @param now epoch milliseconds, of the reading of the hold */
export function holdCause(hold: Hold, now: number): HeldBack {
  switch (hold.type) {
    case 'paused':
      return { change: 'person', cause: pauseCause(hold) };
    case 'full': {
      const { kind } = hold;
      if (kind === 'serial') return { change: 'others', cause: SERIAL_BUSY };
      return hold.limit === 0
        ? { change: 'person', cause: shutCause({ ...hold, kind }) }
        : { change: 'others', cause: fullCause({ ...hold, kind }) };
    }
    case 'rate':
      return { change: 'time', cause: rateCause(hold.untilAt, now) };
    case 'breaker':
      return breakerCause(hold, now);
  }
}

type Pause = Extract<Hold, { type: 'paused' }>;
type Full = Extract<Hold, { type: 'full' }>;
type Broken = Extract<Hold, { type: 'breaker' }>;

const NOTE_CHARS = 80;

function pauseCause({ kind, name, reason }: Pause): Cause {
  const note = oneLine(reason ?? '', NOTE_CHARS);
  const en = note && ` (${note})`;
  const zh = note && `（${note}）`;
  if (kind === 'gateway')
    return {
      reason: 'draining',
      text: both(`Nothing new starts for now${en}; what runs goes on.`, `目前不启动新任务${zh}，运行中的继续。`),
      next: both('It starts when an operator lets new errands start again.', '管理员重新放行后会自动开始。'),
    };
  const what = whose(kind, name);
  return {
    reason: `${kind}_paused`,
    text: both(`Errands ${what.en} are paused${en}.`, `${what.zh}已暂停${zh}。`),
    next: both('It starts when an operator resumes them.', '管理员恢复后会自动开始。'),
  };
}

/** Whose errands are meant. Names of owners and keys are not told: they may hold what the task was asked to do. */
function whose(kind: GateKind, name: string): Words {
  const place = placeName(name);
  if (kind === 'pool') return both(`of ${place.en}`, `${place.zh} 的任务`);
  if (kind === 'lane') return both(`of lane ${name}`, `通道 ${name} 的任务`);
  return kind === 'owner' ? both('of this conversation', '本会话的任务') : both('of this kind', '此类任务');
}

/** A limit of 0 is a pause by another name. */
function shutCause({ kind, name }: Full & { kind: GateKind }): Cause {
  const what = whose(kind, name);
  return {
    reason: `${kind}_shut`,
    text: both(`No errand ${what.en} may run: the limit is 0.`, `${what.zh}同时运行上限为 0，无法开始。`),
    next: both('It starts when an operator raises the limit.', '管理员调高上限后会自动开始。'),
  };
}

function fullCause({ kind, name, limit }: Full & { kind: GateKind }): Cause {
  const what = whose(kind, name);
  const isOne = limit === 1;
  return {
    reason: `${kind}_full`,
    text: both(
      `Only ${limit} errand${isOne ? '' : 's'} ${what.en} may run at once, and ${isOne ? 'one is' : 'so many are'} running.`,
      `${what.zh}同时最多运行 ${limit} 个，目前已满。`,
    ),
    next: both('It starts when one of them has ended.', '其中一个结束后就会开始。'),
  };
}

const SERIAL_BUSY: Cause = {
  reason: 'serial_busy',
  text: both(
    'An errand for the same thing is under way, and they go one after another.',
    '同一对象的另一个任务正在进行，须逐个执行。',
  ),
  next: both('It starts when that one has ended, however it ends.', '那个任务结束后（无论结果）就会开始。'),
};

function rateCause(untilAt: number, now: number): Cause {
  const left = inTime(untilAt - now);
  return {
    reason: 'start_rate',
    text: both(
      `Only so many errands of this kind may start in a time; the next one may ${left.en}.`,
      `此类任务限制了启动频率，下一个可在 ${left.zh}开始。`,
    ),
    untilAt,
  };
}

function breakerCause({ name, admission }: Broken, now: number): HeldBack {
  if (admission.state === 'half_open')
    return {
      change: 'others',
      cause: {
        reason: 'breaker_testing',
        text: both(
          `The service it needs (${name}) was down; one errand is trying now whether it is back.`,
          `所需的服务（${name}）此前不可用，正由一个任务试探是否恢复。`,
        ),
        next: both('It starts when that one has succeeded.', '试探成功后就会开始。'),
      },
    };
  const left = inTime(admission.untilAt - now);
  const why = BROKEN[admission.reason];
  return {
    change: 'time',
    cause: {
      reason: 'breaker_open',
      text: both(
        `The service it needs (${name}) ${why.en}; it is tried again ${left.en}.`,
        `所需的服务（${name}）${why.zh}，${left.zh}再试。`,
      ),
      next: both('It starts when the service is back.', '服务恢复后会自动开始。'),
      untilAt: admission.untilAt,
    },
  };
}

const BROKEN: Record<BreakerReason, Words> = {
  failure_rate: both('has failed too often', '多次出错'),
  probe_failed: both('still fails', '仍未恢复'),
  probe_rate_limited: both('asked to come back later', '要求稍后再试'),
  operator: both('was taken out by an operator', '已被管理员停用'),
};
