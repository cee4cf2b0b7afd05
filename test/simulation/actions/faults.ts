import type { Report } from '../../../src/agents/protocol.ts';
import { AppError } from '../../../src/errors.ts';
import { LEASE_MS } from '../gateway-process.ts';
import type { Death } from '../mortal-store.ts';
import type { Random } from '../random.ts';
import { differences } from '../rows.ts';
import type { World } from '../world.ts';
import type { Action } from './action.ts';

const HOUR_MS = 3_600_000;
const PLACES: readonly Death['place'][] = ['before the events', 'before the commit', 'after the commit'];

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
  { name: 'start the gateway', weight: 6, run: startGateway },
  { name: 'late report', weight: 3, run: lateReport },
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
function jump(world: World, random: Random): string | null {
  if (!world.memory.jumpSeen) return null;
  const size = random.chance(0.5) ? random.between(15_000, 60_000) : random.between(60_000, 3 * HOUR_MS);
  const ms = random.chance(0.5) ? size : -size;
  world.time.jump(ms);
  world.memory.jumpSeen = false;
  world.memory.interruptedAt = world.time.monotonic;
  return `the clock jumps by ${ms} ms`;
}

function planDeath(world: World, random: Random): string | null {
  if (!world.gateway || world.gateway.dead || world.gateway.store.death) return null;
  const death = { transactions: random.between(1, 4), place: random.pick(PLACES)! };
  world.gateway.store.death = death;
  return `the gateway will die ${death.place} of transaction ${death.transactions} from here`;
}

async function startGateway(world: World): Promise<string | null> {
  if (world.gateway && !world.gateway.dead) return null;
  await world.startGateway();
  return 'start the gateway';
}

/** A word of a run that is over, or with a token that is not its own: it must change no row but the history. */
async function lateReport(world: World, random: Random, check: () => void): Promise<string | null> {
  const { gateway } = world;
  // New tasks that let reports go first are written, so that nothing but this report is.
  await world.pass(25, check);
  check();
  const before = world.rows;
  const run = random.pick([...before.runs.values()]);
  const machine = world.machines.find(({ identity }) => identity.agentId === run?.agent_id);
  if (!run || !machine?.process?.registered || !gateway || gateway.dead || gateway.store.death) return null;
  const isOver = run.ended_at !== null;
  const head = { runId: world.ids.encode(run.id), leaseToken: isOver ? run.lease_token : 'stolen' };
  // Some of these numbers the run has used itself.
  const report = { ...head, seq: random.between(0, 9), ...random.pick(LATE)! } as Report;
  const call = { agentId: run.agent_id, instanceId: machine.process.instanceId, reports: [report] };
  const answer = await gateway.gateway.report(machine.identity, call).catch((error: unknown) => {
    if (error instanceof AppError && error.code === 'session_replaced') return null;
    throw error;
  });
  await world.time.settle();
  const result = answer?.results[0]?.result ?? 'session_replaced';
  check();
  const what = `late ${report.type} of run ${run.id}: ${result}`;
  if (result === 'accepted') throw new Error(`${what}, although ${isOver ? 'the run is over' : 'the token is wrong'}`);
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
