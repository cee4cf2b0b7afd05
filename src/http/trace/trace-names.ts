import type { Words } from '../../tasks/explain-facts.ts';
import { both } from '../../tasks/explain-words.ts';

/** A stored word for people: `timed_out` is `timed out`, `超时`. One that is not known here stays as it is in Chinese, too. */
export function named(word: string): Words {
  const en = word.replaceAll('_', ' ');
  return both(en, CHINESE[word] ?? en);
}

const CHINESE: Readonly<Record<string, string>> = {
  // Ends of tasks, runs and flows.
  succeeded: '成功',
  finished: '已完成',
  failed: '失败',
  timed_out: '超时',
  cancelled: '已取消',
  lost: '失联',
  released: '被退回',
  blocked: '需要人工处理',
  needs_input: '需要回答',
  unknown: '结果未知',
  // What was done with a task.
  started: '已启动',
  cancel_requested: '请求取消',
  retried: '重试',
  paused: '暂停',
  resumed: '恢复',
  priority: '更改优先级',
  notify: '更改通知方式',
  deadline: '整体期限已到',
  snapshot: '活动迹象',
  progress: '进度',
  // What processes do.
  busy: '忙碌',
  idle: '空闲',
  stopped: '已停止',
  gone: '已消失',
  // Messages.
  refused: '被拒绝',
  ignored: '被忽略',
  pending: '等待发送',
  sending: '正在发送',
  sent: '已发送',
  dead: '无法送达',
  superseded: '已被结果取代',
  expired: '已过期',
  final: '结果',
  update: '进展',
  reply: '回复',
  notice: '通知',
  // What a run says of an effect.
  success: '成功',
  fail: '失败',
  again: '没有发生',
};
