import type { Cause, WhyFacts, WhyTask, Words } from './explain-facts.ts';
import { failedNeedsWords } from './explain-needs.ts';
import { afterTries, both, ended, joined, lasting, lastTry, quoted } from './explain-words.ts';
import { reasonWords } from './reason-words.ts';
import type { FinalState } from './states.ts';

/** How a task ended and why. */
export function endCause({ task, needs }: WhyFacts, status: FinalState): Cause {
  const text = SENTENCES[status][task.reason ?? '']?.(task, needs) ?? plain(task, status);
  const next = status === 'succeeded' ? undefined : (NEXT[task.reason ?? ''] ?? RETRY);
  return { reason: task.reason ?? status, text, ...(next === undefined ? {} : { next }) };
}

type Sentence = (task: WhyTask, needs: WhyFacts['needs']) => Words;

const RETRY = both('Retry it to run it again.', '可以重试让它重新运行。');

/** Where a mere repeat would not help. */
const NEXT: Readonly<Record<string, Words>> = {
  permanent_error: both(
    'A repeat by itself would not help; retry it once the cause is gone.',
    '直接重复无济于事，排除原因后再重试。',
  ),
  dependency_failed: both('Retry the one that failed.', '请重试失败的那个任务。'),
};

function failed({ attempt, said }: WhyTask): Words {
  const tries = afterTries(attempt);
  const what = said === '' ? both(', and no reason was given', '，没有说明原因') : quoted(said);
  return ended(both(`It failed${tries.en}${what.en}`, `失败${tries.zh}${what.zh}`));
}

const givenUp: Sentence = ({ reason, said }) => {
  const why = both(reasonWords('en', reason)!, reasonWords('zh', reason)!);
  const last = reason === 'rate_limited_too_long' ? quoted(said) : both('', '');
  return ended(
    both(`It was given up: ${why.en}${last.en && ` (${said})`}`, `已放弃：${why.zh}${last.zh && `（${said}）`}`),
  );
};

function lost({ attempt }: WhyTask): Words {
  const tries = lastTry(attempt);
  return both(
    `The machine it ran on stopped answering${tries.en}; nobody knows how far it came.`,
    `运行它的机器没有响应${tries.zh}，不清楚进行到了哪一步。`,
  );
}

/** Its error tells what held it back, in the words of the sweep: after the first colon. */
function expired({ attempt, said, saidZh = said }: WhyTask): Words {
  const en = /: (.+)$/.exec(said)?.[1] ?? '';
  const zh = /(?:：|: )(.+)$/.exec(saidZh)?.[1] ?? en;
  const held = both(quoted(en).en, quoted(zh).zh);
  return ended(
    attempt === 0
      ? both(`No machine took it before its time was over${held.en}`, `在有效期内没有机器领取它${held.zh}`)
      : both(`It was not done before its time was over${held.en}`, `在有效期内没有完成${held.zh}`),
  );
}

/** Every reason word that the engine writes with a final state; a test collects them from the source. */
const SENTENCES: Record<FinalState, Readonly<Record<string, Sentence>>> = {
  succeeded: {
    '': (task) => {
      const took = lasting((task.endedAt ?? task.createdAt) - task.createdAt);
      return both(`It is done; it took ${took.en}.`, `已完成，用时 ${took.zh}。`);
    },
    finished_before_cancel: () => both('It was done before it could be cancelled.', '在取消之前已经完成。'),
  },
  failed: {
    permanent_error: failed,
    attempts_used_up: failed,
    rate_limited_too_long: givenUp,
    handed_back_too_often: givenUp,
    breaker_open: () =>
      both(
        'It was not started: the service it needs was not available, and it is not to wait for it.',
        '未启动：所需的服务不可用，且它不等待服务恢复。',
      ),
    expired,
    deadline: () =>
      both('It was not done before the time for all of its errands was over.', '整组任务的时限已到，它没有完成。'),
  },
  timed_out: {
    attempts_used_up: ({ attempt, timeoutMs }) => {
      const limit = lasting(timeoutMs);
      const tries = lastTry(attempt);
      return both(
        `It took longer than the ${limit.en} that it has${tries.en}.`,
        `运行时间超过了 ${limit.zh}的上限${tries.zh}。`,
      );
    },
  },
  cancelled: {
    cancel_requested: () => both('It was cancelled on request.', '已按要求取消。'),
    cancelled_by_agent: () => both('The machine that ran it called it off.', '运行它的机器取消了它。'),
    dependency_failed: (_task, needs) => failedNeedsWords(needs),
    deadline: () => both('The time for all of its errands was over.', '整组任务的时限已到。'),
  },
  lost: {
    attempts_used_up: lost,
    lost_not_retried: (task) => {
      const what = lost({ ...task, attempt: 0 });
      return both(`${what.en} It is not to run twice by mistake.`, `${what.zh}为避免重复执行，没有再试。`);
    },
    never_started: () =>
      both(
        'Machine after machine stopped answering before it had begun.',
        '每台领取它的机器都在开始之前就没有响应了。',
      ),
  },
};

/** Rows of another version may have no reason, or one that is not known here: its word is all there is to say. */
function plain(task: WhyTask, status: FinalState): Words {
  const { reason } = task;
  return joined(byState(task, status), reason === null ? undefined : both(`(${reason})`, `（${reason}）`))!;
}

function byState(task: WhyTask, status: FinalState): Words {
  if (status === 'lost') return lost(task);
  if (status === 'failed') return failed(task);
  return {
    succeeded: both('It is done.', '已完成。'),
    timed_out: both('It took too long.', '运行超时。'),
    cancelled: both('It was cancelled.', '已取消。'),
  }[status];
}
