import { labelSuffix } from '../../../src/tasks/streams.ts';
import type { AgentProcess } from '../agent-process.ts';
import { FREE_TEMPLATES } from '../world.ts';
import { firstBreach, type Invariant } from './invariant.ts';

/** Time passes in pieces of up to 8 seconds, and the sweeper may need one of them to notice. */
const MOMENT_MS = 10_000;

export const WAITING_LAWS: readonly Invariant[] = [
  {
    name: 'no agent waits for work while a task that it may take is due',
    breach: ({ now, world }) => {
      const { memory, time, gateway } = world;
      if (!gateway || gateway.dead || time.monotonic - memory.interruptedAt < MOMENT_MS) return undefined;
      if (time.monotonic - memory.pausedAt < MOMENT_MS) return undefined;
      const waiting = world.agents().filter(({ waitsSince }) => time.monotonic - (waitsSince ?? Infinity) >= MOMENT_MS);
      if (waiting.length === 0) return undefined;
      return firstBreach(memory.dueSince, ([id, since]) => {
        if (time.monotonic - since < MOMENT_MS) return undefined;
        const { template, queue } = now.tasks.get(id)!;
        const taker = FREE_TEMPLATES.has(template) && waiting.find((agent) => queuesOf(agent).has(queue));
        return taker
          ? `task ${id} is due for ${time.monotonic - since} ms, and ${taker.name} waits for work`
          : undefined;
      });
    },
  },
];

function queuesOf({ machine: { identity } }: AgentProcess): Set<string> {
  const suffixes = ['', labelSuffix(identity.labels)];
  const places = [`@${identity.agentId}`, ...identity.pools];
  return new Set(places.flatMap((place) => suffixes.map((suffix) => `${place}/shell${suffix}`)));
}
