import type { AgentProcess } from '../agent-process.ts';
import type { Random } from '../random.ts';
import type { World } from '../world.ts';
import type { Action } from './action.ts';

/** What agents do, by themselves and by accident. */
export const AGENTS: readonly Action[] = [
  { name: 'register', weight: 8, run: (world, random) => one(world, random, registers) },
  { name: 'pull', weight: 16, run: (world, random) => one(world, random, pulls) },
  { name: 'heartbeat', weight: 8, run: (world, random) => one(world, random, beats) },
  { name: 'work', weight: 40, run: (world, random) => one(world, random, (agent) => agent.work(random.chance(0.15))) },
  { name: 'report', weight: 26, run: (world, random) => one(world, random, reports) },
  {
    name: 'release',
    weight: 0.5,
    run: (world, random) =>
      one(world, random, (agent) => {
        if (agent.runs.size === 0) return null;
        agent.release();
        return 'hands everything back';
      }),
  },
  { name: 'kill an agent', weight: 1.2, run: killAgent },
  { name: 'start an agent', weight: 6, run: startAgent },
  { name: 'clone an agent', weight: 0.4, run: cloneAgent },
  { name: 'cut off', weight: 0.7, run: cutOff },
  { name: 'reconnect', weight: 3, run: reconnect },
];

function one(world: World, random: Random, act: (agent: AgentProcess, random: Random, world: World) => string | null) {
  const agent = random.pick(world.agents());
  const what = agent ? act(agent, random, world) : null;
  return what === null ? null : `${agent!.name} ${what}`;
}

function registers(agent: AgentProcess, _random: Random, world: World): string | null {
  if (agent.registered || agent.is('register')) return null;
  world.begin(agent.register());
  return 'registers';
}

function pulls(agent: AgentProcess, random: Random, world: World): string | null {
  if (!agent.registered || agent.free === 0) return null;
  const waitMs = random.chance(0.4) ? 25_000 : 0;
  world.begin(agent.pull(waitMs));
  return `pulls, waits ${waitMs}`;
}

function beats(agent: AgentProcess, random: Random, world: World): string | null {
  if (!agent.registered || agent.is('beat')) return null;
  const waitMs = random.chance(0.3) ? 8_000 : 0;
  world.begin(agent.beat(waitMs));
  return `beats, waits ${waitMs}`;
}

function reports(agent: AgentProcess, random: Random, world: World): string | null {
  if (!agent.registered || agent.backlog.length === 0 || agent.is('send')) return null;
  const max = random.chance(0.5) ? 100 : random.between(1, 2);
  world.begin(agent.send(max, random.chance(0.4)));
  const reports = agent.backlog.slice(0, max).map(({ runId, seq, type }) => `${world.nameOf(runId)} ${type} ${seq}`);
  return `reports ${reports.join(', ')}`;
}

function killAgent(world: World, random: Random): string | null {
  const agent = random.pick(world.agents());
  const noticed = random.chance(0.7);
  agent?.kill(noticed);
  return agent ? `kill ${agent.name}${noticed ? '' : ', and nobody notices'}` : null;
}

function startAgent(world: World, random: Random): string | null {
  const machine = random.pick(world.machines.filter(({ process }) => process === null));
  if (!machine) return null;
  const agent = world.startAgent(machine);
  world.begin(agent.register());
  return `start ${agent.name}`;
}

/** Somebody copied the agent's settings to another machine: nothing of its disk came along. */
function cloneAgent(world: World, random: Random): string | null {
  const machine = random.pick(world.machines);
  if (!machine) return null;
  const disk = { journal: new Set<string>(), spool: new Map() };
  const clone = world.newAgent({ ...machine, disk, process: null });
  world.clones.push(clone);
  world.begin(clone.register());
  return `clone ${machine.identity.agentId} as ${clone.name}`;
}

function cutOff(world: World, random: Random): string | null {
  const machine = random.pick(world.machines.filter((candidate) => !candidate.cutOff));
  if (!machine) return null;
  machine.cutOff = true;
  return `cut off ${machine.identity.agentId}`;
}

function reconnect(world: World, random: Random): string | null {
  const machine = random.pick(world.machines.filter((candidate) => candidate.cutOff));
  if (!machine) return null;
  machine.cutOff = false;
  return `reconnect ${machine.identity.agentId}`;
}
