import type { Explanation } from '../../src/tasks/explain.ts';
import { explain } from '../../src/tasks/explain.ts';
import type { WhyAgent, WhyFacts, WhyRun, WhyTask } from '../../src/tasks/explain-facts.ts';
import type { GateKind } from '../../src/tasks/gate-settings.ts';
import type { Hold } from '../../src/tasks/gates.ts';
import { FINAL_STATES, type TaskState } from '../../src/tasks/states.ts';

/** One task for every cause there is, as docs/why.md shows them. */

export const NOW = 1_800_000_000_000;

const TASK: WhyTask = {
  status: 'queued',
  reason: null,
  attempt: 0,
  maxAttempts: 3,
  runAt: NOW - 5_000,
  createdAt: NOW - 5_000,
  endedAt: null,
  expiresAt: null,
  cancelRequestedAt: null,
  timeoutMs: 600_000,
  onLost: 'retry',
  place: 'default',
  runtime: 'shell',
  labels: {},
  isSought: true,
  percent: null,
  said: '',
};

export const AGENT: WhyAgent = {
  agentId: 'agent-1',
  online: true,
  lastSeenAt: NOW,
  pools: ['default'],
  labels: {},
  runtimes: ['shell'],
  freeSlots: 1,
};

export const RUN: WhyRun = {
  agentId: 'agent-1',
  claimedAt: NOW - 126_000,
  startedAt: NOW - 125_000,
  leaseUntil: NOW + 25_000,
  deadlineAt: NOW + 535_000,
};

type More = Partial<Omit<WhyFacts, 'task'>> & { task?: Partial<WhyTask> };

/** A due task that a free agent could take, but for what is given. */
export function factsWith({ task, ...more }: More = {}): WhyFacts {
  return {
    now: NOW,
    run: null,
    agents: [AGENT],
    holds: [],
    place: { position: 1, total: 1, isMore: false },
    needs: [],
    effects: [],
    leaseMs: 30_000,
    cancelGraceMs: 20_000,
    ...more,
    task: { ...TASK, ...task },
  };
}

const paused = (kind: GateKind, name: string, reason: string | null = null): Hold => ({
  type: 'paused',
  kind,
  name,
  reason,
});
const full = (kind: GateKind | 'serial', name: string, limit: number): Hold => ({ type: 'full', kind, name, limit });
const held = (...holds: Hold[]): More => ({ holds });
const busy = { ...AGENT, freeSlots: 0 };
const away = { ...AGENT, online: false, lastSeenAt: NOW - 300_000 };
const onAgent = (task: Partial<WhyTask>, run: Partial<WhyRun> = {}): More => ({
  task: { status: 'running', attempt: 1, ...task },
  run: { ...RUN, ...run },
});
const silentFor = { leaseUntil: NOW + 12_000 };
const ended = (status: TaskState, reason: string | null, more: Partial<WhyTask> = {}): More => ({
  task: { status, reason, attempt: 1, endedAt: NOW, ...more },
});
const open = { state: 'open', untilAt: NOW + 25_000 } as const;

/** In the order of the page. Of one word there may be several: what is said differs. */
export const SAMPLES: readonly More[] = [
  held(paused('gateway', '*', 'new disk')),
  held(paused('template', 't')),
  held(paused('pool', 'default', 'maintenance')),
  held(paused('lane', 'cron')),
  held(paused('owner', 'agent:main:telegram:direct:7')),
  held(full('template', 't', 0)),
  held(full('owner', 'agent:main:telegram:direct:7', 0)),
  held(full('pool', 'default', 0)),
  held(full('lane', 'cron', 0)),
  { agents: [] },
  { agents: [], task: { place: '@printer-pc' } },
  { task: { runtime: 'http' } },
  { task: { labels: { city: 'sz' } } },
  { agents: [{ ...AGENT, labels: { city: 'sz' } }], task: { labels: { city: 'sz' }, isSought: false } },
  { agents: [away] },
  { agents: [away, { ...away, agentId: 'agent-2' }] },
  { agents: [{ ...AGENT, heldBack: { by: 'drain', why: 'new disk' } }] },
  { agents: [{ ...AGENT, heldBack: { by: 'load', load: 1.9, cores: 2, freeMemory: 0.5 } }] },
  {
    agents: [
      { ...AGENT, heldBack: { by: 'drain', why: null } },
      { ...AGENT, agentId: 'agent-2', heldBack: { by: 'memory', load: 0.2, cores: 2, freeMemory: 0.07 } },
    ],
  },
  { task: { runAt: NOW + 50_400_000 } },
  { task: { runAt: NOW + 25_000, reason: 'transient_error', attempt: 1, said: 'connection refused' } },
  { task: { runAt: NOW + 25_000, reason: 'timed_out', attempt: 2 } },
  { task: { runAt: NOW + 120_000, reason: 'rate_limited' } },
  held({ type: 'breaker', name: 'psb', admission: { ...open, reason: 'failure_rate' } }),
  held({ type: 'breaker', name: 'psb', admission: { ...open, reason: 'probe_failed' } }),
  held({ type: 'breaker', name: 'psb', admission: { ...open, reason: 'probe_rate_limited' } }),
  held({ type: 'breaker', name: 'psb', admission: { ...open, reason: 'operator' } }),
  held({ type: 'rate', template: 't', untilAt: NOW + 2_000 }),
  held(full('serial', 't:302', 1)),
  held(full('template', 't', 5)),
  held(full('owner', 'agent:main:telegram:direct:7', 1)),
  held(full('pool', 'default', 3)),
  held(full('lane', 'cron', 1)),
  held({ type: 'breaker', name: 'psb', admission: { state: 'half_open', probeFree: false } }),
  { agents: [busy] },
  { agents: [busy, { ...busy, agentId: 'agent-2' }], place: { position: 3, total: 12, isMore: false } },
  { place: { position: 3, total: 12, isMore: false } },
  { place: { position: null, total: 100, isMore: true } },
  {},
  { task: { expiresAt: NOW } },
  onAgent({ status: 'leased', attempt: 0 }, { startedAt: null }),
  onAgent({}, { sign: { at: NOW - 20_000, activity: 'idle' } }),
  onAgent({ percent: 40 }),
  onAgent({ timeoutMs: 100_000 }, { deadlineAt: NOW + 30_000 }),
  onAgent({}, silentFor),
  onAgent({ onLost: 'ask' }, silentFor),
  onAgent({ onLost: 'fail' }, silentFor),
  onAgent({ cancelRequestedAt: NOW - 5_000 }),
  { task: { status: 'waiting', reason: 'needs_input', said: 'Which colour?' } },
  { task: { status: 'waiting', reason: 'blocked', said: 'The quota is used up' } },
  { task: { status: 'waiting', reason: 'blocked' }, effects: ['payment'] },
  { task: { status: 'waiting', reason: 'lost_ask' } },
  {
    task: { status: 'waiting', reason: 'needs' },
    needs: [
      { taskId: 'k7q2', status: 'running' },
      { taskId: 'm3xa', status: 'queued' },
    ],
  },
  { task: { status: 'paused' } },
  ended('succeeded', null),
  ended('succeeded', 'finished_before_cancel'),
  ended('failed', 'permanent_error', { said: 'no such room' }),
  ended('failed', 'attempts_used_up', { said: 'connection refused', attempt: 3 }),
  ended('failed', 'rate_limited_too_long', { said: 'HTTP 429' }),
  ended('failed', 'handed_back_too_often', { attempt: 1 }),
  ended('failed', 'expired', { attempt: 0 }),
  ended('failed', 'expired'),
  ended('failed', 'breaker_open'),
  ended('failed', 'deadline'),
  ended('timed_out', 'attempts_used_up', { attempt: 3 }),
  ended('cancelled', 'cancel_requested'),
  ended('cancelled', 'cancelled_by_agent'),
  { ...ended('cancelled', 'dependency_failed'), needs: [{ taskId: 'k7q2', status: 'failed' }] },
  ended('cancelled', 'deadline'),
  ended('lost', 'attempts_used_up', { attempt: 3 }),
  ended('lost', 'lost_not_retried'),
  ended('lost', 'never_started', { attempt: 0 }),
];

export const explained: readonly Explanation[] = SAMPLES.map((sample) => explain(factsWith(sample)));

/** The generated part of docs/why.md. */
export function whyDocument(): string {
  const rows = (states: readonly TaskState[]) =>
    explained
      .filter(({ status }) => states.includes(status))
      .map(
        ({ status, reason, text, next }) =>
          `| ${status} | \`${reason}\` | ${cell(text.en, next?.en)} | ${cell(text.zh, next?.zh)} |`,
      );
  const table = (title: string, states: readonly TaskState[]) => [
    `### ${title}`,
    '',
    '| State | Word | Told as | 中文 |',
    '| --- | --- | --- | --- |',
    ...rows(states),
    '',
  ];
  return [
    ...table('In line', ['queued']),
    ...table('On a machine', ['leased', 'running']),
    ...table('Waiting for something', ['waiting', 'paused']),
    ...table('Over', FINAL_STATES),
  ]
    .join('\n')
    .trimEnd();
}

function cell(text: string, next: string | undefined): string {
  return next === undefined ? text : `${text} *${next}*`;
}
