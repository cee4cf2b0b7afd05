import { expect, it } from 'vitest';
import { type Failure, shrink, simulate } from './simulate.ts';
import { simulationTemplates } from './world.ts';

/** Seeds and steps of an ordinary run: enough for 100,000 steps in all parts together. */
const SEEDS = 200;
const STEPS = 500;
/** As many as run side by side. */
const PARTS = 2;
const BATCH = 10;
const SHRINK_TRIES = Number(process.env.SHRINK ?? 150);
const TRACE_LINES = 30;
const TIMEOUT_MS = 600_000;

/** Registers the tests of one part; the parts run side by side. */
export function simulationPart(part: number): void {
  const { SEED, SIMULATE_MINUTES } = process.env;
  if (SEED !== undefined) replay(part, Number(SEED));
  else if (SIMULATE_MINUTES !== undefined) endure(part, Number(SIMULATE_MINUTES));
  else {
    for (let first = part; first <= SEEDS; first += PARTS * BATCH) {
      const seeds = Array.from({ length: BATCH }, (_, index) => first + index * PARTS).filter((seed) => seed <= SEEDS);
      it(
        `every law holds at every step: seeds ${seeds[0]} to ${seeds.at(-1)}, every other`,
        () => runSeeds(seeds),
        TIMEOUT_MS,
      );
    }
  }
}

/** `SEED=7 STEPS=1,2,9 npx vitest run test/simulation`: that one alone. */
function replay(part: number, seed: number): void {
  const steps = process.env.STEPS?.split(',').map(Number) ?? firstSteps(STEPS);
  const test = part === 1 ? it : it.skip;
  test(`every law holds at every step: seed ${seed}`, () => runOne(seed, steps), TIMEOUT_MS);
}

/** `npm run simulate -- --minutes N`: seeds nobody has tried, for so long. */
function endure(part: number, minutes: number): void {
  const first = Math.floor(Date.now() / 1_000) * 10_000 + part * 2_000;
  const until = Date.now() + minutes * 60_000;
  const run = async () => {
    let seed = first;
    for (; Date.now() < until; seed += 1) await runOne(seed, firstSteps(STEPS));
    console.log(`part ${part}: ${seed - first} seeds from ${first}, ${(seed - first) * STEPS} steps`);
  };
  it(`every law holds at every step, for ${minutes} minutes`, run, minutes * 60_000 + TIMEOUT_MS);
}

async function runSeeds(seeds: readonly number[]): Promise<void> {
  for (const seed of seeds) await runOne(seed, firstSteps(STEPS));
}

let templatesOfAll: ReturnType<typeof simulationTemplates> | undefined;

async function runOne(seed: number, steps: readonly number[]): Promise<void> {
  templatesOfAll ??= simulationTemplates();
  const templates = await templatesOfAll;
  const { failure } = await simulate(seed, steps, templates);
  if (failure) expect.fail(report(failure, await shrink(failure, templates, SHRINK_TRIES)));
}

const firstSteps = (count: number) => Array.from({ length: count }, (_, index) => index + 1);

function report(failure: Failure, smallest: Failure): string {
  const { seed, law, words } = failure;
  return [
    `${law}: ${words}`,
    `  again: SEED=${seed} npx vitest run test/simulation (it broke in step ${failure.steps.at(-1)})`,
    `  smaller, ${smallest.steps.length} steps (${smallest.words.split('\n')[0]}):`,
    `  SEED=${seed} STEPS=${smallest.steps.join(',')} npx vitest run test/simulation`,
    `  its last steps:`,
    ...smallest.trace.slice(-TRACE_LINES).map((line) => `    ${line}`),
  ].join('\n');
}
