import type { Lang } from '../sessions/lang.ts';

/** Why a queued task was put back, as words for a person; undefined where there is nothing to say. */
export function reasonWords(lang: Lang, reason: string | null): string | undefined {
  return reason === null ? undefined : REASONS[reason]?.[lang];
}

const REASONS: Readonly<Record<string, Readonly<Record<Lang, string>>>> = {
  lease_expired: { en: 'the machine it ran on stopped answering', zh: '运行它的机器没有响应' },
  timed_out: { en: 'it took too long', zh: '超时' },
  transient_error: { en: 'a passing fault', zh: '临时故障' },
  rate_limited: { en: 'the other side asked to come back later', zh: '对方要求稍后再试' },
  agent_stopped: { en: 'the machine it ran on was stopped', zh: '运行它的机器已停止' },
  breaker_open: { en: 'the service it needs is not available right now', zh: '所需的服务目前不可用' },
  dependency_failed: { en: 'another errand that it needs did not succeed', zh: '所依赖的其他任务未成功' },
  deadline: { en: 'the time for the whole was over', zh: '整体期限已到' },
  expired: { en: 'it waited too long for a free machine', zh: '等待空闲机器的时间过长' },
  lost_ask: {
    en: 'the machine it ran on stopped answering, and nobody knows how far it came',
    zh: '运行它的机器没有响应，不清楚进行到了哪一步',
  },
  handed_back_too_often: {
    en: 'the machines that took it gave it back again and again',
    zh: '领取它的机器一再将它退回',
  },
  rate_limited_too_long: {
    en: 'the other side asked again and again to come back later',
    zh: '对方一再要求稍后再试',
  },
};
