import { messageOf } from '../../src/errors.ts';
import type { TemplateRegistry } from '../../src/flows/templates.ts';
import type { Action } from './actions/action.ts';
import { ACTIONS } from './actions/all.ts';
import { endInPeace } from './ending.ts';
import { INVARIANTS } from './invariants/all.ts';
import { changesBetween, type Invariant } from './invariants/invariant.ts';
import { Random } from './random.ts';
import { VirtualTime } from './virtual-time.ts';
import { World } from './world.ts';

export interface Life {
  /** One line a step. */
  readonly trace: readonly string[];
  /** Names of the actions that were taken. */
  readonly taken: ReadonlySet<string>;
  /** Absent where every law held until the end. */
  readonly failure?: Failure;
}

export interface Failure {
  readonly seed: number;
  /** Number of the step in which it broke; those of its past that were taken, too. */
  readonly steps: readonly number[];
  readonly law: string;
  readonly words: string;
  /** One line a step, the last one broke it. */
  readonly trace: readonly string[];
}

/** A law does not hold. */
class Breach extends Error {
  readonly law: string;

  constructor(law: string, words: string) {
    super(words);
    this.law = law;
  }
}

/** So often an action is drawn in place of one that makes no sense now. */
const DRAWS = 6;

/**
 * One life of everything, step by step; the same seed and steps always give the same. Each step draws from a stream of its own, so that
 * a step means much the same when others before it are left out.
 * @param steps numbers of the steps to take, rising
 * @param laws what must hold after every step
 */
export async function simulate(
  seed: number,
  steps: readonly number[],
  templates: TemplateRegistry,
  laws: readonly Invariant[] = INVARIANTS,
): Promise<Life> {
  const time = new VirtualTime();
  const trace: string[] = [];
  const names = new Set<string>();
  let world: World | undefined;
  let taken = 0;
  time.install();
  try {
    world = await World.create(seed, time, templates);
    for (const step of steps) {
      taken += 1;
      await takeStep(world, laws, new Random(seed, step), step, { trace, names });
    }
    const waits = await endInPeace(world, () => checkLaws(world!, laws));
    if (waits !== undefined) throw new Breach('nothing due waits for ever', waits);
    return { trace, taken: names };
  } catch (error) {
    const law = error instanceof Breach ? error.law : 'nothing unforeseen happens';
    const words =
      error instanceof Breach || !(error instanceof Error) ? messageOf(error) : (error.stack ?? error.message);
    return { trace, taken: names, failure: { seed, steps: steps.slice(0, taken), law, words, trace } };
  } finally {
    await world?.end();
    time.uninstall();
  }
}

async function takeStep(
  world: World,
  laws: readonly Invariant[],
  random: Random,
  step: number,
  { trace, names }: { trace: string[]; names: Set<string> },
): Promise<void> {
  world.beginStep(random);
  const at = (world.time.monotonic / 1_000).toFixed(1);
  const line = trace.push(`${step} at ${at} s`) - 1;
  const tell = (what: string) => {
    trace[line] = [`${step} at ${at} s: ${what}`, ...world.notes].join('; ');
  };
  let what = '';
  try {
    what = await act(world, random, names, () => checkLaws(world, laws));
    // Mostly everything comes to rest; else the next thing happens in the middle of this one.
    if (random.chance(0.75)) await world.time.settle();
    else await world.time.turns(random.between(0, 3));
    checkLaws(world, laws);
  } finally {
    tell(what);
  }
}

async function act(world: World, random: Random, names: Set<string>, check: () => void): Promise<string> {
  for (let draw = 0; draw < DRAWS; draw += 1) {
    const action: Action = random.weighted(ACTIONS);
    const what = await action.run(world, random, check);
    if (what === null) continue;
    names.add(action.name);
    return what;
  }
  return 'nothing';
}

/** @throws Breach of the first law that does not hold, or what somebody met with that nobody foresaw */
function checkLaws(world: World, laws: readonly Invariant[]): void {
  const { before, now } = world.look();
  const look = { before, now, world, changed: changesBetween(before, now) };
  for (const { name, breach } of laws) {
    const words = breach(look);
    if (words !== undefined) throw new Breach(name, words);
  }
}

/** Leaves out steps that the failure does not need, half of them at first and then fewer, at most `tries` times. */
export async function shrink(
  failure: Failure,
  templates: TemplateRegistry,
  tries: number,
  laws: readonly Invariant[] = INVARIANTS,
): Promise<Failure> {
  let smallest = failure;
  let left = tries;
  for (
    let size = Math.ceil(smallest.steps.length / 2);
    size >= 1 && left > 0;
    size = size === 1 ? 0 : Math.ceil(size / 2)
  ) {
    for (let from = 0; from < smallest.steps.length && left > 0; left -= 1) {
      const steps = [...smallest.steps.slice(0, from), ...smallest.steps.slice(from + size)];
      const { failure: found } = await simulate(failure.seed, steps, templates, laws);
      if (found?.law === failure.law) smallest = found;
      else from += size;
    }
  }
  return smallest;
}
