import type { FlowState } from '../../src/flows/follow.ts';
import type { MessageStatus } from '../../src/outbox/message.ts';
import type { RunOutcome } from '../../src/tasks/run-words.ts';
import {
  type DeliveryStatus,
  FINAL_STATES,
  TASK_STATES,
  TASK_VERBS,
  type TaskState,
  type TaskVerb,
} from '../../src/tasks/states.ts';

/** The generated part of docs/states.md: every word of every table of states, with what it means. The types keep it complete. */

const TASK_WORDS: Record<TaskState, string> = {
  waiting:
    'Something must happen first: tasks that it needs must end (reason `needs`), or a person answers a question or removes what blocks it. No agent holds it.',
  queued:
    'May be taken by an agent, from `runAt` on; that moment may lie ahead (asked for later, or the pause before a retry).',
  leased: 'An agent took it and has not said yet that its program runs. The lease runs.',
  running: 'Its program runs on an agent that holds the lease and renews it with every heartbeat.',
  paused: 'Set aside by a person: no agent takes it until it is resumed.',
  succeeded: 'Its program ended well.',
  failed:
    'It will not be tried again: a permanent error, all executions used up, rate limits without end, its template gone, its time to live over (reason `expired`), or that of its flow (reason `deadline`).',
  timed_out: 'The last execution that it had reached the time limit.',
  cancelled:
    'A person or its own agent called it off, or a task whose success it needs has ended without it (reason `dependency_failed`).',
  lost: 'Its agent stopped answering and it is not to run again: no execution is left, its template says `onLost: fail`, or agent after agent was lost before it started. Nobody knows how far it came.',
};

const VERB_WORDS: Record<TaskVerb, string> = {
  release:
    'What it waited for has come: the tasks that it needs have ended, or a person tries a blocked task again, which goes on from its checkpoint. A need that failed cancels it.',
  claim:
    'An agent takes it: due, of a queue that the agent serves, best priority first, then oldest. A new run with its own lease token is the fence.',
  start:
    'The agent says that the program runs; only now an execution is counted. Joined with the end where both come together.',
  heartbeat:
    'The agent is alive: the lease is extended. The answer says whether to go on, to cancel, or that the lease is lost.',
  ask: 'The program asks a question (`needs_input`) or needs a person to act (`blocked`). The run ends, the checkpoint is kept.',
  succeed:
    'The agent reports success; also after a cancel was asked for, and the person is told that it came too late.',
  fail: 'The agent reports a failure. `transient`: again after a growing pause, while executions are left. `rate_limited`: again after the given time, and the execution does not count, within bounds. `permanent`: failed.',
  time_out:
    'The agent reports that the time limit was reached, or the server sees it a minute later: again while executions are left.',
  release_lease:
    'The agent stops in good order and hands it back: queued at once (from the 11th time on after a growing pause), and the execution does not count. The 100th time: failed.',
  expire:
    'The lease ran out, or a newer process of the agent has registered: once per lease. What follows is `onLost` of its template: `retry`, queued at once in its old place while executions are left; `ask`, waiting, and the flow is blocked until a person retries or cancels; `fail`, lost.',
  confirm_cancel: 'The agent confirms the cancel, or the server does when the grace is over.',
  give_up:
    'Its time to live is over before an agent took it: failed, reason `expired`; a retry by a person lifts that limit. Or its circuit breaker is open and its template says `onOpen: fail`: reason `breaker_open`. Or the deadline of its flow is over: reason `deadline`.',
  cancel:
    'A person calls it off where no agent holds it. On an agent the wish is stored and told; the end follows by another verb.',
  pause: 'A person sets it aside; its time to live stands still.',
  resume: 'A person lets it go on, in its old place.',
  retry:
    'A person runs a finished task again: the next generation, executions counted from zero, one more final message. The history stays. With needs that are not met it waits for them; where one of them has failed it is refused. What was skipped because of it waits again.',
};

const RUN_WORDS: Record<RunOutcome, string> = {
  succeeded: 'The program ended well.',
  failed: 'The program failed; the error class says what follows.',
  timed_out: 'The time limit was reached.',
  cancelled: 'It was stopped because of a cancel.',
  lost: 'Its agent stopped answering, or was replaced by a newer process.',
  released: 'Its agent handed it back before the end.',
  blocked: 'A person must act before it makes sense to go on.',
  needs_input: 'The program asked a question.',
};

const FLOW_WORDS: Record<FlowState, string> = {
  active: 'A task of it is queued, leased, running or paused.',
  waiting: 'It waits for an event or a time; `waitTarget` says which.',
  blocked: 'It needs a person: `blockedSummary` says what for, `blockedTaskId` where.',
  finished: 'Its last task succeeded; of a graph, all of them.',
  failed: 'Its last task failed, timed out or was lost; of a graph, any of them.',
  cancelled: 'Its last task was cancelled; of a graph, one was, and none failed.',
};

const DELIVERY_WORDS: Record<DeliveryStatus, string> = {
  pending: 'The task has not ended, so there is no result to bring yet.',
  session_queued: 'The final message is a row of the conversation’s outgoing queue and waits to be sent.',
  delivered: 'The platform has accepted the final message; for the web chat, it is there to be read.',
  failed:
    'The final message will not be sent any more: refused, given up, or its fate is unknown. `/resend` tries again.',
  parent_missing: 'There is a conversation, but no way to it: its flow or its route is gone.',
  not_applicable:
    'Nobody is to be told: no conversation asked, its policy is `silent`, or its graph is told with the message of its last task.',
};

export const MESSAGE_WORDS: Record<MessageStatus, string> = {
  pending: 'Waits for its turn in its chat; `next_at` may lie ahead.',
  sending: 'One sender holds it under a lease; at most one message of a chat is in this state.',
  sent: 'The platform has accepted all parts and given them ids.',
  unknown:
    'It may have arrived: the sender died between send and mark, or the answer was lost. It is not sent again by itself.',
  dead: 'The platform refuses it for good.',
  superseded: 'An update that was overtaken by the result of its task: never sent.',
  expired: 'It could not be sent for so long that it was given up.',
};

/** Everything between the markers of docs/states.md. */
export function statesDocument(): string {
  return [
    '### The picture',
    '',
    '```mermaid',
    'stateDiagram-v2',
    ...picture(),
    '```',
    '',
    '### Task states',
    '',
    ...words('State', TASK_STATES, TASK_WORDS, (state) =>
      (FINAL_STATES as readonly string[]).includes(state) ? ' Final.' : '',
    ),
    '### Verbs',
    '',
    '| Verb | From | To | Effect |',
    '| --- | --- | --- | --- |',
    ...verbs(),
    '',
    '### Run outcomes',
    '',
    ...words('Outcome', Object.keys(RUN_WORDS) as RunOutcome[], RUN_WORDS),
    '### Flow states',
    '',
    ...words('State', Object.keys(FLOW_WORDS) as FlowState[], FLOW_WORDS),
    '### deliveryStatus of a task',
    '',
    ...words('Status', Object.keys(DELIVERY_WORDS) as DeliveryStatus[], DELIVERY_WORDS),
    '### States of an outgoing message',
    '',
    ...words('State', Object.keys(MESSAGE_WORDS) as MessageStatus[], MESSAGE_WORDS),
  ]
    .join('\n')
    .trimEnd();
}

/** One arrow per pair of states; a verb that leaves the state as it is has none. */
function picture(): string[] {
  const arrows = new Map<string, string[]>([
    ['[*] --> queued', ['create']],
    ['[*] --> waiting', ['create']],
  ]);
  for (const [verb, { from, to }] of Object.entries(TASK_VERBS)) {
    if (verb === 'heartbeat') continue;
    for (const start of from)
      for (const end of to) {
        const arrow = `${start} --> ${end}`;
        arrows.set(arrow, [...(arrows.get(arrow) ?? []), verb]);
      }
  }
  return [...[...arrows].map(([arrow, by]) => `  ${arrow}: ${by.join(', ')}`)];
}

function verbs(): string[] {
  return Object.entries(TASK_VERBS).map(([verb, { from, to }]) => {
    const result = verb === 'heartbeat' ? 'same' : code(to);
    return `| \`${verb}\` | ${code(from)} | ${result} | ${VERB_WORDS[verb as TaskVerb]} |`;
  });
}

const code = (list: readonly string[]) => list.map((word) => `\`${word}\``).join(', ');

function words<W extends string>(
  title: string,
  order: readonly W[],
  meanings: Record<W, string>,
  more: (word: W) => string = () => '',
): string[] {
  return [
    `| ${title} | Meaning |`,
    '| --- | --- |',
    ...order.map((word) => `| \`${word}\` | ${meanings[word]}${more(word)} |`),
    '',
  ];
}
