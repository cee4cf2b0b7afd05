import type { GraphSubmission } from '../../../src/flows/submit.ts';
import { NOTIFY_POLICIES } from '../../../src/tasks/states.ts';
import type { Random } from '../random.ts';
import { sessionOf, type World } from '../world.ts';
import type { Action } from './action.ts';

/** Templates of tasks in graphs: some of them fail for good, time out, or may not run twice. */
const TEMPLATES = ['plain', 'once', 'brief', 'asking', 'fragile', 'single'];

/** Tasks that need one another, and a burst of one owner. */
export const GRAPHS: readonly Action[] = [
  { name: 'submit a graph', weight: 1.6, run: submitGraph },
  { name: 'a burst of one owner', weight: 0.5, run: burst },
];

function submitGraph(world: World, random: Random): string {
  const graph = randomGraph(world, random);
  world.begin(
    world
      .request(null, ({ submitter }) => submitter.submitGraph(graph))
      .then((answers) => {
        for (const { taskId } of answers) world.memory.created.add(world.ids.decode(taskId)!);
      }),
  );
  const shape = graph.tasks.map(
    ({ needs = [], when }, index) => `${index}<-${needs.join('+')}${when === 'always' ? '!' : ''}`,
  );
  return `submit a graph ${shape.join(' ')}, deadline ${graph.deadline ?? 'none'}`;
}

function randomGraph(world: World, random: Random): GraphSubmission {
  const route = random.chance(0.2) ? undefined : random.pick(world.routes);
  const notify = random.pick(NOTIFY_POLICIES)!;
  const tasks = Array.from({ length: random.between(2, 5) }, (_, index) => {
    const needs = Array.from({ length: index }, (_never, on) => on).filter(() => random.chance(0.5));
    return {
      template: random.pick(TEMPLATES)!,
      args: { n: '1' },
      notify,
      ...(route ? { sessionKey: sessionOf(route) } : {}),
      ...(needs.length > 0 ? { needs, when: random.chance(0.3) ? ('always' as const) : ('success' as const) } : {}),
    };
  });
  return { tasks, ...(random.chance(0.4) ? { deadline: random.between(5_000, 120_000) } : {}) } as GraphSubmission;
}

function burst(world: World, random: Random): string {
  const route = random.pick(world.routes)!;
  const submission = { template: 'plain', args: { n: '1' }, sessionKey: sessionOf(route), notify: 'silent' as const };
  const count = random.between(8, 14);
  world.begin(
    world
      .request(null, ({ submitter }) => submitter.submitAll(Array.from({ length: count }, () => submission)))
      .then((answers) => {
        for (const { taskId } of answers) world.memory.created.add(world.ids.decode(taskId)!);
      }),
  );
  return `${count} tasks at once for ${sessionOf(route)}`;
}
