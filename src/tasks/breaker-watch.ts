import type { Tx } from '../store/tx.ts';
import { nextInBand, runsJustEnded } from './breaker-queries.ts';
import { type Admission, callOutcome } from './breaker-state.ts';
import type { Breakers, CallReport } from './breakers.ts';
import { headsOf, settle } from './cancel.ts';
import { both } from './explain-words.ts';
import { allBands } from './line-queries.ts';
import { insertEvents, type TaskHead } from './queries.ts';
import type { ErrorClass, RunOutcome } from './run-words.ts';
import { isHeld } from './states.ts';
import type { Emit, TaskEvent } from './task.ts';

type Room = Pick<Breakers, 'admit' | 'recordOutcomes' | 'policies'>;

/** Of one band a sweep looks at so many tasks: those that its agents would take next. */
const LOOK_AHEAD = 200;

/**
 * Subscriber of task events, before those that notify and those that give tasks to agents: tells the breakers how runs ended, and
 * ends tasks that must not wait behind an open one. An event of a template without a breaker costs one look-up.
 */
export function watchBreakers(breakers: Room, emit: Emit<TaskEvent>) {
  return async (tx: Tx, events: readonly TaskEvent[]): Promise<void> => {
    if (breakers.policies.all().length === 0) return;
    const ended: StateEvent[] = [];
    const due: QueuedEvent[] = [];
    for (const event of events) {
      if (!breakers.policies.of(event.template)) continue;
      if (isRunEnd(event)) ended.push(event);
      else if (event.type === 'task.queued' && event.runAt <= tx.now) due.push(event);
    }
    const opened = ended.length === 0 ? [] : await recordEnds(tx, ended, breakers);
    if (opened.length > 0) await sweepBreakers(tx, breakers, emit);
    if (due.length > 0) await failBehindBreakers(tx, due, breakers, emit);
  };
}

/**
 * Fails queued tasks whose template says `onOpen: fail` and whose breaker is open, with reason `breaker_open`; no attempt is used up.
 * All others are left alone. Answers how many it ended.
 */
export async function failBehindBreakers(
  tx: Tx,
  tasks: readonly { readonly id: number; readonly template: string }[],
  breakers: Room,
  emit: Emit<TaskEvent>,
): Promise<number> {
  const names = new Map(tasks.flatMap((task) => nameOfImpatient(task, breakers)));
  if (names.size === 0) return 0;
  const admissions = await breakers.admit(tx, names.values());
  const closedTo = [...names].filter(([, name]) => admissions.get(name)!.state === 'open');
  if (closedTo.length === 0) return 0;
  const heads = await headsOf(
    tx,
    closedTo.map(([id]) => ({ id })),
  );
  let count = 0;
  for (const [name, admission] of admissions) {
    if (admission.state !== 'open') continue;
    const behind = [...heads.values()].filter((head) => names.get(head.id) === name && head.status === 'queued');
    await failAll(tx, behind, name, admission, emit);
    count += behind.length;
  }
  return count;
}

/**
 * Part of a sweep: fails tasks that were queued before their breaker opened, or became due since, as soon as they are among the next
 * of their band. Costs nothing while no such breaker is open.
 */
export async function sweepBreakers(tx: Tx, breakers: Room, emit: Emit<TaskEvent>): Promise<number> {
  const impatient = breakers.policies
    .all()
    .filter(({ templates }) => templates.some(({ onOpen }) => onOpen === 'fail'))
    .map(({ settings }) => settings.name);
  if (impatient.length === 0) return 0;
  const admissions = await breakers.admit(tx, impatient);
  if (![...admissions.values()].some(({ state }) => state === 'open')) return 0;
  const next: { id: number; template: string }[] = [];
  for (const { id: stream, template, priority } of await tx.all(allBands, {})) {
    if (breakers.policies.of(template)?.onOpen !== 'fail') continue;
    next.push(...(await tx.all(nextInBand, { stream, priority, now: tx.now, limit: LOOK_AHEAD })));
  }
  return failBehindBreakers(tx, next, breakers, emit);
}

type StateEvent = Extract<TaskEvent, { type: 'task.state' }>;
type QueuedEvent = Extract<TaskEvent, { type: 'task.queued' }>;

function isRunEnd(event: TaskEvent): event is StateEvent {
  return event.type === 'task.state' && isHeld(event.from) && !isHeld(event.to);
}

/** Answers the names of the breakers that have opened. */
async function recordEnds(tx: Tx, events: readonly StateEvent[], breakers: Room): Promise<string[]> {
  const rows = [...new Set(events.map(({ id }) => id))].map((id) => [id]);
  const runs = await tx.all(runsJustEnded, { rows, now: tx.now });
  const byTask = new Map<number, typeof runs>();
  for (const run of runs) byTask.set(run.task_id, [...(byTask.get(run.task_id) ?? []), run]);
  const reports: CallReport[] = [];
  // From the last event back: a task that had two runs in one transaction ended the newer one later.
  for (const event of events.toReversed()) {
    const run = byTask
      .get(event.id)
      ?.sort((a, b) => a.id - b.id)
      .pop();
    if (!run) continue;
    const errorClass = run.error_class as ErrorClass | null;
    reports.unshift({
      settings: breakers.policies.of(event.template)!,
      runId: run.id,
      claimedAt: run.claimed_at,
      outcome: callOutcome(run.outcome as RunOutcome, errorClass, event.to === 'cancelled'),
      error: run.error,
    });
  }
  return breakers.recordOutcomes(tx, reports);
}

function nameOfImpatient(task: { id: number; template: string }, { policies }: Room): [number, string][] {
  const policy = policies.of(task.template);
  return policy?.onOpen === 'fail' ? [[task.id, policy.name]] : [];
}

async function failAll(
  tx: Tx,
  heads: readonly TaskHead[],
  name: string,
  { reason, untilAt }: Extract<Admission, { state: 'open' }>,
  emit: Emit<TaskEvent>,
): Promise<void> {
  if (heads.length === 0) return;
  const why = reason === 'operator' ? 'a person has opened it' : 'the service behind it has failed too often';
  const error = both(`the breaker ${name} is open: ${why}`, `断路器 ${name} 已断开：${why}`);
  await settle(tx, heads, { to: 'failed', reason: 'breaker_open', error }, emit);
  const first = await tx.ids(heads.length);
  const data = { breaker: name, untilAt };
  await tx.run(insertEvents, {
    rows: heads.map(({ id }, index) => [id, 0, first + index, 'breaker_open', tx.now, data]),
  });
}
