import type { Report } from '../../../src/agents/protocol.ts';
import { AppError } from '../../../src/errors.ts';
import type { AgentProcess } from '../agent-process.ts';
import { LEASE_MS } from '../gateway-process.ts';
import type { Mishap } from '../mortal-store.ts';
import type { Random } from '../random.ts';
import { differences } from '../rows.ts';
import type { World } from '../world.ts';
import type { Action } from './action.ts';

const HOUR_MS = 3_600_000;
const PLACES: readonly Mishap['place'][] = ['before the events', 'before the commit', 'after the commit'];

/** Time, crashes, and words that come too late. */
export const FAULTS: readonly Action[] = [
  {
    name: 'a moment passes',
    weight: 14,
    run: (world, random, check) => passes(world, random.between(50, 3_000), check),
  },
  {
    name: 'a lease passes',
    weight: 0.8,
    run: (world, random, check) => passes(world, LEASE_MS + random.between(-2_000, 6_000), check),
  },
  { name: 'a lease passes with heartbeats', weight: 0.8, run: leaseWithHeartbeats },
  { name: 'pause', weight: 0.3, run: pause },
  { name: 'clock jump', weight: 0.7, run: jump },
  {
    name: 'kill the gateway',
    weight: 0.5,
    run: (world) => {
      if (!world.gateway || world.gateway.dead) return null;
      world.gateway.store.die();
      return 'kill the gateway';
    },
  },
  { name: 'the gateway will die', weight: 1.2, run: planDeath },
  { name: 'a transaction will fail', weight: 1.5, run: planFailure },
  { name: 'start the gateway', weight: 6, run: startGateway },
  { name: 'late report', weight: 3, run: lateReport },
  { name: 'repeated report', weight: 2, run: repeatedReport },
];

async function passes(world: World, ms: number, check: () => void): Promise<string> {
  await world.pass(ms, check);
  return `${ms} ms pass`;
}

async function leaseWithHeartbeats(world: World, _random: Random, check: () => void): Promise<string> {
  await world.pass(LEASE_MS + 10_000, async () => {
    check();
    for (const agent of world.agents()) world.begin(agent.beat(0));
    await world.time.settle();
    check();
  });
  return 'a lease passes, agents beat';
}

async function pause(world: World, random: Random): Promise<string> {
  const ms = LEASE_MS + random.between(0, 60_000);
  await world.standStill(ms);
  return `everything stands still for ${ms} ms`;
}

/** Small ones are within the sweeper's tolerance and belong to no law; two before it looks may hide each other. */
async function jump(world: World, random: Random, check: () => void): Promise<string | null> {
  if (!world.memory.jumpSeen) return null;
  const inTheMiddle = random.chance(0.5);
  if (inTheMiddle) {
    // A sweep has begun, and does not know yet.
    world.time.pass(1_050);
    world.time.fireDue();
    await world.time.turns(random.between(0, 2));
    // What that sweep has done already, it did by the clock as it was.
    check();
  }
  const size = random.chance(0.5) ? random.between(15_000, 60_000) : random.between(60_000, 3 * HOUR_MS);
  const ms = random.chance(0.5) ? size : -size;
  world.time.jump(ms);
  world.memory.jumpSeen = false;
  world.memory.interruptedAt = world.time.monotonic;
  return `the clock jumps by ${ms} ms${inTheMiddle ? ' in the middle of a sweep' : ''}`;
}

function planDeath(world: World, random: Random): string | null {
  return plan(world, { transactions: random.between(1, 4), place: random.pick(PLACES)!, kind: 'death' });
}

function planFailure(world: World, random: Random): string | null {
  const place = random.chance(0.5) ? 'before the events' : 'before the commit';
  return plan(world, {
    transactions: random.between(1, 4),
    place,
    kind: random.chance(0.5) ? 'disk full' : 'bad unit',
  });
}

function plan({ gateway }: World, mishap: Mishap): string | null {
  if (!gateway || gateway.dead || gateway.store.mishap) return null;
  gateway.store.mishap = mishap;
  return `${mishap.kind} ${mishap.place} of transaction ${mishap.transactions} from here`;
}

async function startGateway(world: World): Promise<string | null> {
  if (world.gateway && !world.gateway.dead) return null;
  await world.startGateway();
  return 'start the gateway';
}

/** A word of a run that is over, or with a token that is not its own. */
async function lateReport(world: World, random: Random, check: () => void): Promise<string | null> {
  const run = random.pick([...world.rows.runs.values()]);
  const agent = world.machines.find(({ identity }) => identity.agentId === run?.agent_id)?.process;
  if (!run || !agent) return null;
  const head = { runId: world.ids.encode(run.id), leaseToken: run.ended_at === null ? 'stolen' : run.lease_token };
  // Some of these numbers the run has used itself.
  const report = { ...head, seq: random.between(0, 9), ...random.pick(LATE)! } as Report;
  return mustChangeNothing(world, agent, report, check);
}

/** A word that was answered long ago comes a second time, from somewhere in the network, while its run goes on. */
async function repeatedReport(world: World, random: Random, check: () => void): Promise<string | null> {
  const agent = random.pick(world.machines.flatMap(({ process }) => process ?? []));
  // Of progress that another overtook before it was written, or that died with the gateway's memory, nobody knows that it came.
  const answered = [...(agent?.runs.values() ?? [])].flatMap((run) =>
    run.answered.filter((it) => it.type !== 'progress'),
  );
  const report = random.pick(answered);
  return agent && report ? mustChangeNothing(world, agent, report, check) : null;
}

/** Nothing else happens meanwhile: whatever changes is its doing. */
async function mustChangeNothing(
  world: World,
  agent: AgentProcess,
  report: Report,
  check: () => void,
): Promise<string | null> {
  // New tasks that let reports go first are written.
  await world.pass(25, check);
  const { gateway, rows: before } = world;
  if (!gateway || gateway.dead || gateway.store.mishap || !agent.registered || agent.dead) return null;
  const { identity } = agent.machine;
  const call = { agentId: identity.agentId, instanceId: agent.instanceId, reports: [report] };
  const answer = await gateway.gateway.report(identity, call).catch((error: unknown) => {
    if (error instanceof AppError && error.code === 'session_replaced') return null;
    throw error;
  });
  await world.time.settle();
  check();
  const result = answer?.results[0]?.result ?? 'session_replaced';
  const what = `late ${report.type} of ${world.nameOf(report.runId)}: ${result}`;
  // Of progress that another has overtaken before it was written, nobody remembers that it came.
  if (result === 'accepted' && report.type !== 'progress')
    throw new Error(`${what}, although it must not count any more`);
  const changed = differences(before, world.rows);
  if (changed.length > 0) throw new Error(`${what}, and yet ${changed.join(', ')}`);
  return what;
}

const LATE: readonly Record<string, unknown>[] = [
  { type: 'started' },
  { type: 'progress', percent: 1, message: 'late' },
  { type: 'checkpoint', data: { by: 'late' } },
  { type: 'output', key: 'by', value: 'late' },
  { type: 'succeeded', summary: 'late', exitCode: 0 },
  { type: 'failed', errorClass: 'transient', error: 'late' },
  { type: 'failed', errorClass: 'permanent', error: 'late' },
  { type: 'blocked', summary: 'late' },
  { type: 'cancelled' },
  { type: 'released' },
];
