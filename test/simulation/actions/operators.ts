import type { GateKind } from '../../../src/tasks/gate-settings.ts';
import type { Random } from '../random.ts';
import { TEMPLATE_NAMES, type World } from '../world.ts';
import type { Action } from './action.ts';

/** What an operator closes and opens again. */
export const OPERATORS: readonly Action[] = [
  { name: 'pause a gate', weight: 0.4, run: pauseGate },
  { name: 'resume a gate', weight: 1.5, run: resumeGate },
];

function pauseGate(world: World, random: Random): string {
  const [kind, name] = random.pick<[GateKind, string]>([
    ['gateway', '*'],
    ['lane', 'main'],
    ['pool', 'default'],
    ['pool', 'extra'],
    ['template', random.pick(TEMPLATE_NAMES)!],
  ])!;
  return setGate(world, kind, name, true);
}

function resumeGate(world: World, random: Random): string | null {
  const gate = random.pick(world.paused());
  return gate ? setGate(world, gate.kind as GateKind, gate.name, false) : null;
}

function setGate(world: World, kind: GateKind, name: string, paused: boolean): string {
  const order = { kind, name, paused, by: 'an operator', why: null };
  world.begin(
    world.request(null, ({ store, controls }) => store.transact('simulation.gate', (tx) => controls.change(tx, order))),
  );
  return `${paused ? 'pause' : 'resume'} ${kind} ${name}`;
}
