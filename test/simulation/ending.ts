import type { GateKind } from '../../src/tasks/gate-settings.ts';
import { isFinal, type TaskState } from '../../src/tasks/states.ts';
import type { GatewayProcess } from './gateway-process.ts';
import type { World } from './world.ts';

/** So many rounds must be enough for anything that is going to happen at all. */
const ROUNDS = 300;
/** Tasks that an agent takes one after another within a round. */
const TURNS = 12;

/** The faults stop, and everything is driven until quiet. Answers what waits for ever, in words; undefined when nothing does. */
export async function endInPeace(world: World, check: () => void): Promise<string | undefined> {
  await makePeace(world, check);
  for (let round = 0; round < ROUNDS; round += 1) {
    await everybodyWorks(world, check);
    const left = unfinished(world);
    if (left === undefined) return leftovers(world);
    await world.pass(1_500, check);
    await world.standStill(untilNextDue(world, round));
    await world.time.settle();
    check();
  }
  return unfinished(world);
}

async function makePeace(world: World, check: () => void): Promise<void> {
  await world.time.settle();
  check();
  world.weather = { losesRequests: 0, losesAnswers: 0, repeats: 0 };
  world.platforms.mood = { refuses: 0, losesAnswers: 0 };
  if (world.gateway && !world.gateway.dead) world.gateway.store.mishap = null;
  else await world.startGateway();
  for (const clone of world.clones) clone.kill(true);
  for (const machine of world.machines) {
    machine.cutOff = false;
    if (!machine.process) world.startAgent(machine);
  }
  // Chats that could not be reached have spoken.
  const { base, store, controls } = world.gateway as GatewayProcess;
  await store.transact('simulation.spoke', (tx) => base.outbox.clearHold(tx, world.routes));
  for (const { kind, name } of world.paused()) {
    const order = { kind: kind as GateKind, name, paused: false, by: 'an operator', why: null };
    await store.transact('simulation.open', (tx) => controls.change(tx, order));
  }
  await world.pass(1_500, check);
}

/** Every agent does its duty until it finds nothing more to do, and its programs end well. */
async function everybodyWorks(world: World, check: () => void): Promise<void> {
  for (const machine of world.machines) if (!machine.process) world.startAgent(machine);
  for (const agent of world.agents()) {
    world.begin(agent.register());
    await world.time.settle();
    world.begin(agent.beat(0));
    for (let turn = 0; turn < TURNS; turn += 1) {
      world.begin(agent.pull(25_000));
      await world.time.settle();
      while (agent.work(true) !== null);
      if (agent.backlog.length === 0) break;
      world.begin(agent.send(1_000, false));
      await world.time.settle();
    }
    check();
  }
}

/** How long nothing will happen by itself, milliseconds. */
function untilNextDue(world: World, round: number): number {
  const now = world.time.now();
  const due = [
    ...[...world.rows.tasks.values()].flatMap((task) => (task.status === 'queued' ? [task.run_at] : [])),
    ...[...world.rows.outbox.values()].flatMap((row) => (row.status === 'pending' ? [row.next_at] : [])),
  ].filter((at) => at > now);
  if (due.length > 0) return Math.min(...due) - now;
  // Something else holds it back, perhaps until the time from which the clock went back: patience grows.
  return 5_000 * 2 ** Math.min(8, Math.floor(round / 10));
}

function unfinished({ rows, machines }: World): string | undefined {
  for (const { id, status, run_at } of rows.tasks.values()) {
    const rests = isFinal(status as TaskState) || status === 'waiting' || status === 'paused';
    if (!rests) return `task ${id} is ${status} for ever (run_at ${run_at})`;
  }
  for (const { id, status, kind } of rows.outbox.values()) {
    if (status === 'pending' || status === 'sending') return `the ${kind} message ${id} is ${status} for ever`;
  }
  for (const { identity, disk } of machines) {
    if (disk.spool.size > 0) return `${identity.agentId} never gets rid of ${[...disk.spool.keys()]}`;
  }
  return undefined;
}

/** What must have come home when all is quiet. */
function leftovers({ rows, memory }: World): string | undefined {
  for (const { id, status, channel } of rows.outbox.values()) {
    if (status === 'sent' && channel !== 'webchat' && !memory.received.has(id))
      return `message ${id} was never received`;
  }
  return undefined;
}
