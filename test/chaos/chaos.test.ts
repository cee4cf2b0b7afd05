import { afterEach, expect, it } from 'vitest';
import { until } from '../support/until.ts';
import { House, type TaskSeen } from './house.ts';
import { type Execution, executions } from './program.ts';

/** How long plugs are pulled: `npm run chaos -- --minutes N` sets it, otherwise 40 s. */
const CHAOS_MS = process.env.CHAOS_MINUTES ? Number(process.env.CHAOS_MINUTES) * 60_000 : 40_000;
const SEED = Number(process.env.CHAOS_SEED ?? Date.now() % 1_000_000);
const CHATS = [101, 102, 103, 104, 105, 106];
const REPEAT = /possibly a repeat/;

let house: House | undefined;
afterEach(() => house?.close());

it(
  `whatever is killed, every task ends once, every result comes home, and no program outlives its task (CHAOS_SEED=${SEED})`,
  async () => {
    house = await House.open(CHATS);
    const random = draws(SEED);
    const asked = await whileChaosReigns(house, random);
    const tasks = await allOver(house, asked);
    expect(tasks.map(({ args }) => args.n).sort(), 'each request is one task').toEqual(
      [...asked.chat.keys(), ...asked.api].sort(),
    );
    for (const task of tasks) {
      expect(task, task.args.n).toMatchObject({ status: 'succeeded' });
      expect(
        task.runs.filter(({ outcome }) => outcome === 'succeeded'),
        task.args.n,
      ).toHaveLength(1);
    }
    resultsCameHome(house, asked.chat);
    neverTwoAtOnce(await executions(house.marks));
    await house.stopAgents();
    expect(await house.survivors()).toEqual([]);
  },
  CHAOS_MS * 2 + 240_000,
);

interface Asked {
  /** By name, the chat that asked. */
  chat: Map<string, number>;
  api: string[];
}

/** People and programs go on asking while gateway and agents are killed at random. */
async function whileChaosReigns(place: House, random: () => number): Promise<Asked> {
  const asked: Asked = { chat: new Map(), api: [] };
  const submissions: Promise<void>[] = [];
  const endsAt = performance.now() + CHAOS_MS;
  let over = false;
  const asking = (async () => {
    for (let n = 0; !over; n += 1) {
      if (n % 3 === 0) {
        const chat = CHATS[Math.floor(random() * CHATS.length)]!;
        asked.chat.set(`chat${n}`, chat);
        place.telegram.userSends({ chat, user: chat, text: `/run mark n=chat${n}` });
      } else {
        asked.api.push(`api${n}`);
        submissions.push(place.submit(`api${n}`));
      }
      await new Promise((resolve) => setTimeout(resolve, 100 + random() * 300));
    }
  })();
  while (performance.now() < endsAt) {
    const draw = random();
    const kills = [];
    if (draw < 0.6) kills.push(place.killGateway(random() * 1_000));
    if (draw > 0.4) kills.push(place.killAgent(random(), random() * 2_000));
    await Promise.all(kills);
    await new Promise((resolve) => setTimeout(resolve, random() * 1_500));
  }
  over = true;
  await asking;
  await Promise.all(submissions);
  return asked;
}

/** Waits until everything that was asked for has ended and its delivery is settled. */
async function allOver(place: House, { chat, api }: Asked): Promise<TaskSeen[]> {
  let tasks: TaskSeen[] = [];
  const isOver = ({ status, source, deliveryStatus }: TaskSeen) =>
    ['succeeded', 'failed', 'timed_out', 'cancelled', 'lost'].includes(status) &&
    (source !== 'chat' || deliveryStatus === 'delivered');
  await until(
    async () => {
      tasks = await place.tasks();
      return tasks.length >= chat.size + api.length && tasks.every(isOver);
    },
    'everything to end',
    180_000,
  ).catch((error: unknown) => {
    const open = tasks.filter((task) => !isOver(task));
    throw new Error(`${(error as Error).message}: ${tasks.length} tasks, open ${JSON.stringify(open.slice(0, 5))}`);
  });
  return tasks;
}

function resultsCameHome({ telegram }: House, asked: ReadonlyMap<string, number>): void {
  for (const [name, chat] of asked) {
    const copies = telegram.botTexts(chat).filter((text) => text.includes(`Marked ${name}.`));
    expect(copies.length, `results of ${name}`).toBeGreaterThanOrEqual(1);
    expect(copies.length, `results of ${name}: ${JSON.stringify(copies)}`).toBeLessThanOrEqual(2);
    for (const copy of copies.slice(1)) expect(copy, `the second result of ${name}`).toMatch(REPEAT);
  }
}

/** A program whose agent was killed may be begun again, but not before it is gone itself. */
function neverTwoAtOnce(all: readonly Execution[]): void {
  const last = new Map<string, Execution>();
  for (const execution of all) {
    const before = last.get(execution.n);
    if (before) expect(before.seenAt, `${execution.n} ran twice at once`).toBeLessThanOrEqual(execution.beganAt);
    last.set(execution.n, execution);
  }
  expect(new Set(all.map(({ run }) => run)).size, 'no run is executed twice').toBe(all.length);
}

function draws(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}
