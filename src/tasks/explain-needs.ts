import type { Cause, WhyNeed, Words } from './explain-facts.ts';
import { both } from './explain-words.ts';
import type { TaskState } from './states.ts';

/** Of a task that waits for others. */
export function needsCause(needs: readonly WhyNeed[]): Cause {
  const list = needsList(needs);
  const count = both(needs.length === 1 ? 'another errand' : `${needs.length} other errands`, `${needs.length} 个任务`);
  const text =
    needs.length === 0
      ? both('It waits for other errands.', '正在等待其他任务。')
      : both(`It waits for ${count.en}: ${list.en}.`, `正在等待 ${count.zh}：${list.zh}。`);
  return { reason: 'needs', text, next: both('It starts when they are done.', '它们完成后会自动开始。') };
}

/** Of a task that was called off because of others. */
export function failedNeedsWords(needs: readonly WhyNeed[]): Words {
  const list = needsList(needs.filter(({ status }) => status !== 'succeeded'));
  return both(
    `An errand that it needed did not succeed${list.en && `: ${list.en}`}.`,
    `它所依赖的任务没有成功${list.zh && `：${list.zh}`}。`,
  );
}

const NEEDS_SHOWN = 3;

function needsList(needs: readonly WhyNeed[]): Words {
  const shown = needs.slice(0, NEEDS_SHOWN);
  const isCut = needs.length > NEEDS_SHOWN;
  const en = shown.map(({ taskId, status }) => `${taskId} (${stateWords(status).en})`).join(', ');
  const zh = shown.map(({ taskId, status }) => `${taskId}（${stateWords(status).zh}）`).join('、');
  return both(en + (isCut ? ', …' : ''), zh + (isCut ? '……' : ''));
}

function stateWords(status: TaskState | null): Words {
  return status === null ? both('gone', '已不存在') : STATE_WORDS[status];
}

const STATE_WORDS: Record<TaskState, Words> = {
  waiting: both('waits', '等待'),
  queued: both('in line', '排队中'),
  leased: both('starting', '正在启动'),
  running: both('running', '运行中'),
  paused: both('paused', '已暂停'),
  succeeded: both('done', '已完成'),
  failed: both('failed', '失败'),
  timed_out: both('timed out', '超时'),
  cancelled: both('cancelled', '已取消'),
  lost: both('lost', '失联'),
};
