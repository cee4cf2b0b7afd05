import type { Lang } from '../sessions/lang.ts';
import { duration, oneLine } from '../text.ts';
import type { AlertRow } from './queries.ts';

/** An agent must be away for so long before the eyes of one process: after a start, a pause or a clock jump all agents may speak first. */
export const CONFIRM_MS = 30_000;
/** An agent is back when it has been seen for so long without another absence. */
export const BACK_MS = 120_000;

/** An agent that people are told of. */
export interface Told {
  readonly agentId: string;
  readonly offlineAt: number;
  /** When it was heard of last; null where that is of no interest. */
  readonly seenAt: number | null;
}

/** What is to be written down and told. */
export interface AlertPlan {
  /** Gone away, and nobody knows. */
  readonly away: readonly Told[];
  /** Seen again: from now on it is watched. */
  readonly returned: readonly string[];
  /** Seen again for long enough. */
  readonly back: readonly string[];
  /** Away again before that: people believe it to be away as it is. */
  readonly gone: readonly string[];
}

/** Pure. @param awayMs how long this process has seen an agent away */
export function planOf(rows: readonly AlertRow[], now: number, awayMs: (agentId: string) => number): AlertPlan {
  const plan = { away: [] as Told[], returned: [] as string[], back: [] as string[], gone: [] as string[] };
  for (const { agent_id: agentId, offline_at, last_seen_at, told_at, back_at } of rows) {
    if (told_at === null) {
      if (offline_at !== null && awayMs(agentId) >= CONFIRM_MS)
        plan.away.push({ agentId, offlineAt: offline_at, seenAt: last_seen_at });
    } else if (offline_at !== null) {
      if (back_at !== null) plan.gone.push(agentId);
    } else if (back_at === null || back_at > now) plan.returned.push(agentId);
    // What counts is when it was heard of: it may have gone again and not be called away yet.
    else if ((last_seen_at ?? now) - back_at >= BACK_MS) plan.back.push(agentId);
  }
  return plan;
}

const NAMED = 20;

/** `⚠️ Agent hotel-12 is offline: nothing was heard of it for 2 min.` */
export function offlineText(lang: Lang, agents: readonly Told[], now: number): string {
  const [first] = agents;
  const silent = duration(lang, Math.max(0, ...agents.map(({ seenAt, offlineAt }) => now - (seenAt ?? offlineAt))));
  if (agents.length === 1) {
    return {
      en: `⚠️ Agent ${nameOf(first!)} is offline: nothing was heard of it for ${silent}.`,
      zh: `⚠️ 执行机 ${nameOf(first!)} 已离线：${silent}没有响应。`,
    }[lang];
  }
  return {
    en: `⚠️ ${agents.length} agents are offline: ${listOf(lang, agents)}. Nothing was heard of them for up to ${silent}.`,
    zh: `⚠️ ${agents.length} 台执行机已离线：${listOf(lang, agents)}。最长 ${silent}没有响应。`,
  }[lang];
}

/** `✅ Agent hotel-12 is back online after 14 min.` */
export function backText(lang: Lang, agents: readonly Told[], now: number): string {
  const away = duration(lang, Math.max(0, ...agents.map(({ offlineAt }) => now - offlineAt)));
  if (agents.length === 1) {
    return {
      en: `✅ Agent ${nameOf(agents[0]!)} is back online after ${away}.`,
      zh: `✅ 执行机 ${nameOf(agents[0]!)} 已恢复在线，离线 ${away}。`,
    }[lang];
  }
  return {
    en: `✅ ${agents.length} agents are back online: ${listOf(lang, agents)}.`,
    zh: `✅ ${agents.length} 台执行机已恢复在线：${listOf(lang, agents)}。`,
  }[lang];
}

const nameOf = ({ agentId }: Told) => oneLine(agentId, 64);

function listOf(lang: Lang, agents: readonly Told[]): string {
  const names = agents
    .slice(0, NAMED)
    .map(nameOf)
    .join(lang === 'zh' ? '、' : ', ');
  const more = agents.length - NAMED;
  return more > 0 ? { en: `${names} and ${more} more`, zh: `${names}等` }[lang] : names;
}
