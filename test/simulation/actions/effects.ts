import { resolveEffectsVerb } from '../../../src/tasks/effect-resolve.ts';
import { EFFECT_POLICIES, type EffectPolicy } from '../../../src/tasks/effect-words.ts';
import { beginEffects, markEffectsVerb } from '../../../src/tasks/effects.ts';
import type { AgentProcess } from '../agent-process.ts';
import type { Random } from '../random.ts';
import type { World } from '../world.ts';
import type { Action } from './action.ts';

/** What programs do outside, under keys that several runs share; the first word of a key is its policy. */
export const policyOf = (key: string) => key.split(' ')[0] as EffectPolicy;
const KEYS = EFFECT_POLICIES.flatMap((policy) => [1, 2, 3, 4].map((n) => `${policy} ${n}`));

export const EFFECTS: readonly Action[] = [
  { name: 'effect', weight: 9, run: effect },
  { name: 'resolve an effect', weight: 0.6, run: resolve },
];

interface Actor {
  readonly agent: AgentProcess;
  readonly runId: string;
  readonly leaseToken: string;
  readonly key: string;
}

/** A program goes a step further with one of its effects: it asks, acts, and says so, and may be killed in between. */
function effect(world: World, random: Random): string | null {
  const agent = random.pick(world.agents());
  const run = random.pick(agent?.running() ?? []);
  if (!agent || !run) return null;
  const id = world.ids.decode(run.runId)!;
  const actor: Actor = { agent, ...run, key: openKey(world, id) ?? random.pick(KEYS)! };
  const told = toldOf(world, actor.key);
  const what = `${agent.name} in run ${id}`;
  switch (told.get(id)) {
    case undefined:
      world.begin(begin(world, actor));
      return `${what} begins ${actor.key}`;
    case 'told': {
      const acts = random.chance(0.8);
      told.set(id, acts ? 'acted' : 'given back');
      if (!acts) world.begin(mark(world, actor, 'again'));
      return `${what} ${acts ? 'does' : 'gives back'} ${actor.key}`;
    }
    case 'acted':
      told.set(id, 'marked');
      world.begin(mark(world, actor, 'success'));
      return `${what} has done ${actor.key}`;
    case 'marked':
    case 'given back':
      return null;
  }
}

/** What this run has begun and not finished. */
function openKey({ memory }: World, runId: number): string | undefined {
  return KEYS.find((key) => ['told', 'acted'].includes(memory.told.get(key)?.get(runId) ?? ''));
}

function toldOf({ memory }: World, key: string) {
  let told = memory.told.get(key);
  if (!told) {
    told = new Map();
    memory.told.set(key, told);
  }
  return told;
}

async function begin(world: World, { agent, runId, leaseToken, key }: Actor): Promise<void> {
  const { identity } = agent.machine;
  const id = world.ids.decode(runId)!;
  const call = { agentId: identity.agentId, runId: id, leaseToken, type: 'pay', key, digest: null };
  const policy = policyOf(key);
  const answers = await world.request(agent.machine, ({ store }) => store.write(beginEffects, [{ ...call, policy }]));
  const { answer } = answers[0]!;
  world.note(`${key} for run ${id}: ${answer}`);
  const told = toldOf(world, key);
  const isThere = !agent.dead && agent.running().some((run) => run.runId === runId);
  if (answer === 'first' && isThere && !told.has(id)) told.set(id, 'told');
}

async function mark(world: World, { agent, runId, leaseToken, key }: Actor, outcome: 'success' | 'again') {
  const { agentId } = agent.machine.identity;
  const id = world.ids.decode(runId)!;
  const call = { agentId, runId: id, leaseToken, type: 'pay', key, outcome, result: `${id}`, error: null };
  const answers = await world.request(agent.machine, ({ store }) => store.write(markEffectsVerb, [call]));
  const { answer } = answers[0]!;
  if (answer === 'done') world.memory.done.set(key, id);
  world.note(`${key} ${outcome} by run ${id}: ${answer}`);
}

/** A person finds out what became of an effect that nobody holds; right or wrong. */
function resolve(world: World, random: Random): string | null {
  const found = random.pick([...world.rows.effects.values()]);
  if (!found) return null;
  const resolution = random.pick(['SUCCESS', 'FAIL', 'AGAIN', 'AGAIN'] as const)!;
  const { memory } = world;
  // Whatever becomes of the request, it may have been heard.
  memory.again.set(found.key, (memory.again.get(found.key) ?? 0) + 1);
  const order = { type: found.type, key: found.key, resolution, result: null, reason: 'they looked', by: 'somebody' };
  world.begin(
    world
      .request(null, ({ store, base }) => store.write(resolveEffectsVerb(base.emit), [order]))
      .then(([answer]) => world.note(`resolve ${found.key}: ${answer!.result}`)),
  );
  return `resolve ${found.key} as ${resolution}`;
}
