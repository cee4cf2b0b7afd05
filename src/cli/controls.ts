import { Argument, type Command, InvalidArgumentError } from 'commander';
import { AppError } from '../errors.ts';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';
import { localTime, table } from './table.ts';

interface Pause {
  at: number;
  by: string;
  why?: string;
}

interface Limit {
  kind: string;
  name: string;
  concurrency: number | null;
  paused?: Pause;
}

interface Lane {
  name: string;
  concurrency: number | null;
  from: 'set' | 'default' | 'agents' | 'none';
  paused?: Pause;
  running: number;
  waitingSince?: number;
}

interface Pool extends Omit<Limit, 'kind'> {
  agents: number;
  capacity: number;
  running: number;
}

interface SetOptions {
  concurrency?: number | 'none';
  pause?: true;
  resume?: true;
  why?: string;
}

const KINDS = ['template', 'owner', 'pool', 'lane'] as const;

/** `errand pools …`, `errand lanes …`, `errand limits …`, `errand drain`: what may start. */
export function controlsCommands(program: Command, act: Act): void {
  const pools = program.command('pools').description('pools of agents: look at them, pause and resume them');
  pools
    .command('list')
    .description('list pools by name')
    .addHelpText('after', '\nExample:\n  errand pools list')
    .action(act(listPools));
  pauseCommands(pools, act, 'pool');
  lanesCommands(program, act);
  limitsCommands(program, act);
  program
    .command('drain')
    .description('start nothing new, whatever is asked for; what runs goes on, what is asked for waits')
    .option('--off', 'open the gateway again: everything that waited starts')
    .option('--why <text>', 'kept in the audit')
    .addHelpText('after', '\nExamples:\n  errand drain --why "moving the database"\n  errand drain --off')
    .action(act(drain));
}

/** `pause` and `resume` of one template or pool. */
export function pauseCommands(parent: Command, act: Act, kind: 'template' | 'pool'): void {
  for (const [verb, description] of [
    ['pause', `start nothing new of a ${kind}; what runs goes on, what waits keeps its place`],
    ['resume', `let a ${kind} go on`],
  ] as const) {
    parent
      .command(`${verb} <${kind}>`)
      .description(description)
      .option('--why <text>', 'kept in the audit, and shown with what waits')
      .addHelpText('after', `\nExample:\n  errand ${kind}s ${verb} ${kind === 'pool' ? 'hotel-12' : 'hello'}`)
      .action(
        act(async ({ api, show }, name: string, options: { why?: string }) => {
          const limit = await api().post<Limit>(`${path`/api/${`${kind}s`}/${name}`}/${verb}`, options);
          const word = kind === 'pool' ? 'Pool' : 'Template';
          show(limit, () => `${word} ${name} ${limit.paused ? 'is paused' : 'goes on'}.`);
        }),
      );
  }
}

function lanesCommands(program: Command, act: Act): void {
  const lanes = program.command('lanes').description('lanes: how much of each may run at once');
  lanes
    .command('list')
    .description('list lanes by name, with what runs and what waits')
    .addHelpText('after', '\nExample:\n  errand lanes list')
    .action(act(listLanes));
  withSetOptions(lanes.command('set <lane>').description('limit, pause or resume a lane'))
    .addHelpText('after', '\nExamples:\n  errand lanes set cron --concurrency 2\n  errand lanes set cron --pause')
    .action(
      act(async ({ api, show }, name: string, options: SetOptions) => {
        const lane = await api().post<Lane>(path`/api/lanes/${name}`, bodyOf(options));
        show(lane, () => `Lane ${name}: ${laneLimit(lane)}${lane.paused ? ', paused' : ''}.`);
      }),
    );
}

function limitsCommands(program: Command, act: Act): void {
  const limits = program.command('limits').description('what people have limited or paused');
  limits
    .command('list')
    .description('list limits and pauses by kind and name')
    .addHelpText('after', '\nExample:\n  errand limits list')
    .action(act(listLimits));
  withSetOptions(
    limits
      .command('set')
      .addArgument(new Argument('<kind>').choices(KINDS))
      .argument('<name>', 'a template, a session key (or * for every owner), a pool, a lane')
      .description('limit, pause or resume a template, an owner, a pool or a lane'),
  )
    .addHelpText(
      'after',
      '\nExamples:\n  errand limits set owner "*" --concurrency 3\n  errand limits set template hello --concurrency none',
    )
    .action(
      act(async ({ api, show }, kind: string, name: string, options: SetOptions) => {
        const limit = await api().post<Limit>(path`/api/limits/${kind}/${name}`, bodyOf(options));
        const most = limit.concurrency === null ? 'no limit of its own' : `at most ${limit.concurrency} at once`;
        show(limit, () => `${kind} ${name}: ${most}${limit.paused ? ', paused' : ''}.`);
      }),
    );
}

function withSetOptions(command: Command): Command {
  return command
    .option('--concurrency <n>', 'running at once; none: no limit set here', concurrencyOf)
    .option('--pause', 'start nothing new of it')
    .option('--resume', 'let it go on')
    .option('--why <text>', 'kept in the audit');
}

/** A parser that answers null is taken by commander for an option without a value. */
function concurrencyOf(text: string): number | 'none' {
  if (text === 'none') return text;
  if (!/^\d{1,6}$/.test(text)) throw new InvalidArgumentError('must be a whole number or none.');
  return Number(text);
}

function bodyOf({ pause, resume, concurrency, why }: SetOptions): object {
  if (pause && resume)
    throw new AppError('invalid_request', '--pause and --resume: only one of them', { field: '--pause' });
  if (concurrency === undefined && !pause && !resume)
    throw new AppError('invalid_request', 'give --concurrency, --pause or --resume', { field: '--concurrency' });
  return {
    why,
    concurrency: concurrency === 'none' ? null : concurrency,
    ...(pause ? { paused: true } : resume ? { paused: false } : {}),
  };
}

async function listPools({ api, show }: Context): Promise<void> {
  const answer = await api().get<{ pools: Pool[] }>('/api/pools');
  show(answer, () => {
    const rows = answer.pools.map((pool) => [
      pool.name,
      String(pool.agents),
      `${pool.running}/${pool.capacity}`,
      pool.concurrency === null ? '' : String(pool.concurrency),
      pausedText(pool.paused),
    ]);
    return table(['POOL', 'AGENTS', 'BUSY', 'LIMIT', 'PAUSED'], rows, 'No pool is known yet.');
  });
}

async function listLanes({ api, show }: Context): Promise<void> {
  const answer = await api().get<{ lanes: Lane[] }>('/api/lanes');
  show(answer, () => {
    const rows = answer.lanes.map((lane) => [
      lane.name,
      laneLimit(lane),
      String(lane.running),
      localTime(lane.waitingSince),
      pausedText(lane.paused),
    ]);
    return table(['LANE', 'LIMIT', 'RUNNING', 'WAITS SINCE', 'PAUSED'], rows, 'No lanes.');
  });
}

async function listLimits({ api, show }: Context): Promise<void> {
  const answer = await api().get<{ limits: Limit[] }>('/api/limits');
  show(answer, () => {
    const rows = answer.limits.map((limit) => [
      limit.kind,
      limit.name,
      limit.concurrency === null ? '' : String(limit.concurrency),
      pausedText(limit.paused),
      limit.paused?.by ?? '',
    ]);
    return table(['KIND', 'NAME', 'LIMIT', 'PAUSED', 'BY'], rows, 'Nothing is limited or paused by a person.');
  });
}

async function drain({ api, show }: Context, options: { off?: true; why?: string }): Promise<void> {
  const { off, ...rest } = options;
  const answer = await api().post<{ draining: boolean }>('/api/drain', { on: off !== true, ...rest });
  show(answer, () =>
    answer.draining
      ? 'The gateway is draining: nothing new starts, what is asked for waits. Open it again with: errand drain --off'
      : 'The gateway is open: what waited starts.',
  );
}

function laneLimit({ concurrency, from }: Lane): string {
  if (from === 'none') return 'no limit';
  return `${concurrency} (${{ set: 'set', default: 'default', agents: 'what the agents can' }[from]})`;
}

function pausedText(pause: Pause | undefined): string {
  return pause === undefined ? '' : `${localTime(pause.at)}${pause.why === undefined ? '' : ` (${pause.why})`}`;
}
