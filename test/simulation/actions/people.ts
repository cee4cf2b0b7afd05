import { AppError } from '../../../src/errors.ts';
import type { Submission } from '../../../src/flows/submit.ts';
import type { TaskTable } from '../../../src/store/tables.ts';
import { allows, isFinal, NOTIFY_POLICIES, PRIORITIES, type TaskState } from '../../../src/tasks/states.ts';
import type { GatewayProcess } from '../gateway-process.ts';
import type { Random } from '../random.ts';
import { sessionOf, TEMPLATE_NAMES, type World } from '../world.ts';
import type { Action } from './action.ts';

/** What people and programs ask for. */
export const PEOPLE: readonly Action[] = [
  { name: 'submit', weight: 6, run: (world, random) => submit(world, randomSubmission(world, random)) },
  {
    name: 'submit with a key',
    weight: 2,
    run: (world, random) => {
      const key = `k${world.memory.keys.size + 1}`;
      const submission = { ...randomSubmission(world, random), idempotencyKey: key };
      world.memory.keys.set(key, { submission, taskId: null });
      return submit(world, submission);
    },
  },
  { name: 'submit again', weight: 2, run: submitAgain },
  { name: 'submit a batch', weight: 0.5, run: submitBatch },
  { name: 'key with another payload', weight: 0.3, run: submitConflict },
  {
    name: 'cancel',
    weight: 2.5,
    run: (world, random) => order(world, random, 'cancel', (task) => !isFinal(task.status as TaskState)),
  },
  {
    name: 'cancel what is over',
    weight: 0.3,
    run: (world, random) => order(world, random, 'cancel', (task) => isFinal(task.status as TaskState)),
  },
  {
    name: 'retry',
    weight: 4,
    run: (world, random) =>
      order(world, random, 'retry', ({ status }) => allows('retry', status as TaskState) || status === 'waiting'),
  },
  {
    name: 'pause',
    weight: 0.7,
    run: (world, random) => order(world, random, 'pause', ({ status }) => status === 'queued'),
  },
  {
    name: 'resume',
    weight: 1,
    run: (world, random) => order(world, random, 'resume', ({ status }) => status === 'paused'),
  },
  {
    name: 'retry what is not over',
    weight: 0.3,
    run: (world, random) => order(world, random, 'retry', ({ status }) => !allows('retry', status as TaskState)),
  },
];

function randomSubmission(world: World, random: Random): Submission {
  const route = random.chance(0.15) ? undefined : random.pick(world.routes)!;
  return {
    template: random.pick(TEMPLATE_NAMES)!,
    args: { n: String(random.between(1, 9)) },
    priority: random.pick(PRIORITIES)!,
    ...(route ? { sessionKey: sessionOf(route) } : {}),
    ...(random.chance(0.9) ? { notify: random.pick(NOTIFY_POLICIES)! } : {}),
    ...(random.chance(0.1) ? { ttl: random.between(5_000, 120_000) } : {}),
    ...(random.chance(0.05) ? { agent: 'a2' } : {}),
  };
}

function submit(world: World, base: Submission): string {
  const random = world.random();
  // A time of its own: not part of the payload that a key stands for.
  const submission = random.chance(0.1) ? { ...base, runAt: world.time.now() + random.between(0, 60_000) } : base;
  world.begin(
    world
      .request(null, ({ submitter }) => submitter.submit(submission))
      .then(({ taskId }) => created(world, taskId, submission.idempotencyKey)),
  );
  const { template, notify = 'default', sessionKey = 'nobody', idempotencyKey } = submission;
  return `submit ${template} ${notify} for ${sessionKey}${idempotencyKey ? ` key ${idempotencyKey}` : ''}`;
}

function created(world: World, publicId: string, key: string | undefined): void {
  const taskId = world.ids.decode(publicId)!;
  world.note(`created ${taskId}`);
  world.memory.created.add(taskId);
  const known = key === undefined ? undefined : world.memory.keys.get(key);
  if (!known) return;
  if (known.taskId !== null && known.taskId !== taskId)
    throw new Error(`key ${key} made task ${known.taskId} and then task ${taskId}`);
  known.taskId = taskId;
}

function submitAgain(world: World, random: Random): string | null {
  const key = random.pick([...world.memory.keys.keys()]);
  return key === undefined ? null : submit(world, world.memory.keys.get(key)!.submission as Submission);
}

function submitBatch(world: World, random: Random): string {
  const batch = Array.from({ length: random.between(2, 5) }, () => randomSubmission(world, random));
  world.begin(
    world
      .request(null, ({ submitter }) => submitter.submitAll(batch))
      .then((answers) => {
        for (const { taskId } of answers) created(world, taskId, undefined);
      }),
  );
  return `submit a batch of ${batch.length}`;
}

function submitConflict(world: World, random: Random): string | null {
  const [key, known] = random.pick([...world.memory.keys]) ?? [];
  if (!known || known.taskId === null) return null;
  const submission = { ...(known.submission as Submission), args: { n: 'other' } };
  const conflict = world
    .request(null, ({ submitter }) => submitter.submit(submission))
    .then(
      () => {
        throw new Error(`key ${key} was accepted with another payload`);
      },
      (error: unknown) => {
        if (!(error instanceof AppError) || error.code !== 'idempotency_conflict') throw error;
      },
    );
  world.begin(conflict);
  return `submit key ${key} with another payload`;
}

/** A person's word about one task; nobody says the opposite before it is answered. */
function order(
  world: World,
  random: Random,
  verb: keyof GatewayProcess['verbs'],
  fits: (task: TaskTable) => boolean,
): string | null {
  const { memory, rows } = world;
  const task = random.pick([...rows.tasks.values()].filter((row) => fits(row) && !memory.ordered.has(row.id)));
  if (!task) return null;
  memory.ordered.add(task.id);
  const answered = world
    .request(null, async ({ store, verbs }) => {
      const [answer] = await store.write(verbs[verb], [{ id: task.id, by: 'somebody' }]);
      return answer!.result;
    })
    .then((result) => {
      world.note(`${verb} ${task.id}: ${result}`);
      if (verb === 'retry') memory.cancels.delete(task.id);
      else if (result === 'cancelled' || result === 'requested') memory.cancels.set(task.id, task.generation);
    })
    .finally(() => memory.ordered.delete(task.id));
  world.begin(answered);
  return `${verb} ${task.id} (${task.status})`;
}
