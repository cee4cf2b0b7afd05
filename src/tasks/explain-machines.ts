import type { Cause, HeldBack, WhyAgent, WhyFacts, WhyTask, Words } from './explain-facts.ts';
import { both, capital, lasting, lineWords, placeName } from './explain-words.ts';

type Wanted = Pick<WhyTask, 'place' | 'runtime' | 'labels' | 'isSought'>;

/** Why no machine takes a task that is due; undefined where one that could is free. */
export function machineCause({
  task,
  agents,
  place,
  now,
}: Pick<WhyFacts, 'agents' | 'place' | 'now'> & { readonly task: Wanted }): Cause | undefined {
  const ofPlace = agents.filter((agent) => isOfPlace(agent, task.place));
  if (ofPlace.length === 0) return absent(task.place);
  const withRuntime = ofPlace.filter(({ runtimes }) => runtimes.includes(task.runtime));
  if (withRuntime.length === 0) return unable(task, runtimeWords(task));
  const able = withRuntime.filter(({ labels }) => hasAll(labels, task.labels));
  if (able.length === 0) return unable(task, labelWords(task));
  if (!task.isSought) return unsought();
  const online = able.filter((agent) => agent.online);
  if (online.length === 0) return offline(task.place, able, now);
  const open = online.filter((agent) => agent.heldBack === undefined);
  if (open.length === 0) return heldBackCause(task.place, online);
  return open.some(({ freeSlots }) => freeSlots > 0) ? undefined : busy(task.place, open.length, place);
}

function isOfPlace({ agentId, pools }: WhyAgent, place: string): boolean {
  return place.startsWith('@') ? place === `@${agentId}` : pools.includes(place);
}

function hasAll(has: WhyAgent['labels'], wanted: Wanted['labels']): boolean {
  return Object.entries(wanted).every(([key, value]) => has[key] === value);
}

function absent(place: string): Cause {
  const where = placeName(place);
  const isOne = place.startsWith('@');
  return {
    reason: 'no_machine',
    text: isOne
      ? both(`${capital(where).en} has never been connected.`, `${where.zh} 从未连接过。`)
      : both(`No machine serves ${where.en}.`, `没有机器为${where.zh} 服务。`),
    next: both('It starts when one is connected.', '有机器连接后会自动开始。'),
  };
}

function unable({ place }: Wanted, { reason, what }: { reason: string; what: Words }): Cause {
  const where = placeName(place);
  return {
    reason,
    text: place.startsWith('@')
      ? both(`${capital(where).en} ${what.en}.`, `${where.zh} ${what.zh}。`)
      : both(
          `No machine of ${where.en} ${what.en.replace('does not have', 'has')}.`,
          `${where.zh} 中没有机器${what.zh}。`,
        ),
    next: both('It starts when one that can is connected.', '有符合要求的机器连接后会自动开始。'),
  };
}

function runtimeWords({ runtime, place }: Wanted): { reason: string; what: Words } {
  const cannot = place.startsWith('@') ? both('cannot', '不能') : both('can', '能');
  return {
    reason: 'no_runtime',
    what: both(`${cannot.en} run ${runtime} errands`, `${cannot.zh}运行 ${runtime} 类任务`),
  };
}

function labelWords({ labels, place }: Wanted): { reason: string; what: Words } {
  const list = Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(', ');
  const lacks = place.startsWith('@') ? both('does not have', '不具备') : both('has', '具备');
  return {
    reason: 'no_labels',
    what: both(`${lacks.en} what it asks for (${list})`, `${lacks.zh}所需条件（${list}）`),
  };
}

function unsought(): Cause {
  return {
    reason: 'template_changed',
    text: both(
      'Its template has changed since or is gone, and no machine looks for what it asked for.',
      '它的模板已更改或删除，没有机器再按它的要求领取任务。',
    ),
    next: both('Cancel it and ask again.', '请取消后重新提交。'),
  };
}

function offline(place: string, able: readonly WhyAgent[], now: number): Cause {
  const seen = lasting(now - Math.max(...able.map(({ lastSeenAt }) => lastSeenAt)));
  const where = placeName(place);
  const who = subject(place, able.length, where);
  const last = able.length === 1 ? both('it was', '最后') : both('the last one was', '最近一台');
  return {
    reason: 'machines_offline',
    text: both(
      `${who.en} offline; ${last.en} heard of ${seen.en} ago.`,
      `${who.zh}不在线，${last.zh}在 ${seen.zh}前有过消息。`,
    ),
    next: both('It starts when one is back.', '有机器恢复在线后会自动开始。'),
  };
}

/** Those that are there are all held back. A machine that falls below its limit is what changes by itself, so it is told first. */
function heldBackCause(place: string, online: readonly WhyAgent[]): Cause {
  const first = online.find(({ heldBack }) => heldBack!.by !== 'drain') ?? online[0]!;
  const more = online.length - 1;
  const others =
    more === 0
      ? both('', '')
      : both(
          ` The same goes for ${more} more of ${placeName(place).en}.`,
          `${placeName(place).zh} 中另有 ${more} 台也不接新任务。`,
        );
  const { text, next } = heldBackWords(first.agentId, first.heldBack!);
  return {
    reason: first.heldBack!.by === 'drain' ? 'machines_draining' : 'machines_overloaded',
    text: both(text.en + others.en, text.zh + others.zh),
    next,
  };
}

function heldBackWords(agentId: string, held: HeldBack): { text: Words; next: Words } {
  if (held.by === 'drain') {
    const why = held.why === null ? both('', '') : both(` (${held.why})`, `（${held.why}）`);
    return {
      text: both(
        `The agent ${agentId} takes nothing new for now${why.en}.`,
        `代理 ${agentId} 目前不接新任务${why.zh}。`,
      ),
      next: both('It starts when a person lets the agent go on.', '有人恢复该代理后会自动开始。'),
    };
  }
  const what = held.by === 'load' ? loadWords(held) : memoryWords(held);
  return {
    text: both(`The agent ${agentId} is overloaded (${what.en}).`, `代理 ${agentId} 负载过高（${what.zh}）。`),
    next: both('It starts when that has fallen.', '负载下降后会自动开始。'),
  };
}

type Shortage = Exclude<HeldBack, { by: 'drain' }>;

function loadWords({ load, cores }: Shortage): Words {
  if (cores === null) return both(`load ${load.toFixed(2)} for each core`, `每核负载 ${load.toFixed(2)}`);
  const sum = (load * cores).toFixed(1);
  return both(`load ${sum} of ${cores} ${cores === 1 ? 'core' : 'cores'}`, `负载 ${sum}，共 ${cores} 核`);
}

function memoryWords({ freeMemory }: Shortage): Words {
  const free = Math.floor((freeMemory ?? 0) * 100);
  return both(`${free} % of its memory free`, `可用内存 ${free} %`);
}

function busy(place: string, count: number, line: WhyFacts['place']): Cause {
  const who = subject(place, count, placeName(place));
  const stands = line === null || (line.total === 1 && !line.isMore) ? null : lineWords(line);
  return {
    reason: 'machines_busy',
    text: both(
      `${who.en} busy${stands === null ? '' : `; it is ${stands.en}`}.`,
      `${who.zh}${count === 1 ? '正' : '都在'}忙${stands === null ? '' : `，${stands.zh}`}。`,
    ),
    next: both('It starts when one is free.', '有空闲机器后会自动开始。'),
  };
}

/** `Both machines of pool default are`, with its verb in English. */
function subject(place: string, count: number, where: Words): Words {
  if (place.startsWith('@')) return both(`${capital(where).en} is`, `${where.zh} `);
  if (count === 1) return both(`The only machine for it in ${where.en} is`, `${where.zh} 中唯一可用的机器`);
  return both(`All ${count} machines for it in ${where.en} are`, `${where.zh} 中可用的 ${count} 台机器`);
}
