import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Report } from '../../src/agents/protocol.ts';
import type { AgentIdentity } from '../../src/agents/tokens.ts';
import type { Route } from '../../src/channels/channel.ts';
import { loadTemplates, type TemplateRegistry } from '../../src/flows/templates.ts';
import { touchSessions } from '../../src/sessions/sessions.ts';
import { type AgentMachine, AgentProcess, type AgentSurroundings } from './agent-process.ts';
import { databaseIn, type GatewayPlace, GatewayProcess, type SentChannel, Unreachable } from './gateway-process.ts';
import { Memory } from './memory.ts';
import { Platforms } from './platform.ts';
import { Random } from './random.ts';
import { NO_ROWS, RowReader, type Rows } from './rows.ts';
import type { VirtualTime } from './virtual-time.ts';

/** Conversations: one platform to which things are sent, and a web chat, whose rows are their own receipts. */
const routesOn = (channel: SentChannel): readonly Route[] => [
  { channel, account: 'default', chat: '7', chatKind: 'direct' },
  { channel, account: 'default', chat: '8', chatKind: 'group' },
  { channel: 'webchat', account: 'default', chat: 'bob', chatKind: 'direct' },
];
export const sessionOf = ({ channel, chat }: Route) => `agent:main:${channel}:direct:${chat}`;

const MACHINES: readonly { identity: AgentIdentity; concurrency: number }[] = [
  { identity: { agentId: 'a1', pools: ['default'], labels: {} }, concurrency: 2 },
  { identity: { agentId: 'a2', pools: ['default', 'extra'], labels: { zone: 'b' } }, concurrency: 3 },
  { identity: { agentId: 'a3', pools: ['extra'], labels: { zone: 'b' } }, concurrency: 1 },
  { identity: { agentId: 'a4', pools: ['default', 'extra'], labels: {} }, concurrency: 1 },
];

/** The sweeper takes it for a pause when it is not called for 11 seconds; time passes in smaller pieces. */
const PIECE_MS = 8_000;

/** How often requests get lost, 0 to 1. */
export interface Weather {
  losesRequests: number;
  losesAnswers: number;
  repeats: number;
}

/** Everything there is: the clocks, the disk, the gateway's present life, the agents, the chats, and what was promised to whom. */
export class World implements GatewayPlace, AgentSurroundings {
  readonly time: VirtualTime;
  readonly folder: string;
  readonly templates: TemplateRegistry;
  readonly memory = new Memory();
  readonly channel: SentChannel;
  readonly routes: readonly Route[];
  readonly platforms = new Platforms(() => this.#random);
  readonly machines: AgentMachine[] = [];
  /** Processes that share the identity of a machine's own and are still alive. */
  readonly clones: AgentProcess[] = [];
  gateway: GatewayProcess | null = null;
  weather: Weather = { losesRequests: 0, losesAnswers: 0, repeats: 0 };
  rows: Rows = NO_ROWS;
  /** What else the present step should tell. */
  notes: string[] = [];
  ids!: GatewayProcess['store']['ids'];
  #reader: RowReader | undefined;
  #random: Random;
  #errors: unknown[] = [];
  #instances = 0;

  private constructor(time: VirtualTime, templates: TemplateRegistry, random: Random) {
    this.time = time;
    this.templates = templates;
    this.#random = random;
    this.channel = random.chance(0.6) ? 'telegram' : 'wecom';
    this.routes = routesOn(this.channel);
    this.folder = mkdtempSync(join(memoryFolder(), 'errand-simulation-'));
    time.drawFrom(() => this.#random.next());
    for (const { identity, concurrency } of MACHINES.slice(0, random.between(2, MACHINES.length))) {
      const disk = { journal: new Set<string>(), spool: new Map<string, Report>() };
      this.machines.push({ identity, concurrency, disk, cutOff: false, process: null });
    }
  }

  /** A gateway that runs, and machines whose agents are about to. */
  static async create(seed: number, time: VirtualTime, templates: TemplateRegistry): Promise<World> {
    const random = new Random(seed, 'world');
    const world = new World(time, templates, random);
    await world.startGateway();
    await world.gateway!.store.transact('simulation.sessions', (tx) =>
      touchSessions(
        tx,
        world.routes.map((route) => ({ sessionKey: sessionOf(route), route, at: tx.now })),
      ),
    );
    world.ids = world.gateway!.store.ids;
    world.#reader = new RowReader(databaseIn(world.folder));
    for (const machine of world.machines) world.begin(world.startAgent(machine).register());
    await time.settle();
    const rough = random.next() * 0.08;
    world.weather = { losesRequests: rough, losesAnswers: rough, repeats: rough };
    world.platforms.mood = { refuses: random.next() * 0.3, losesAnswers: random.next() * 0.15 };
    return world;
  }

  random(): Random {
    return this.#random;
  }

  monotonic(): number {
    return this.time.monotonic;
  }

  note(text: string): void {
    this.notes.push(text);
  }

  nameOf(runId: string): string {
    return `run ${this.ids.decode(runId)}`;
  }

  onTaskEvents: Memory['onTaskEvents'] = (events) => this.memory.onTaskEvents(events);

  onDoubt(): void {
    const outbox = this.#reader?.read().outbox.values() ?? [];
    for (const { id, status } of outbox) if (status === 'sending') this.platforms.doubted.add(id);
  }

  onAnsweredEnd({ runId, type }: Report): void {
    this.memory.answeredEnds.set(this.ids.decode(runId)!, type);
  }

  isHeld({ runId }: Report, { machine }: AgentProcess): boolean {
    const run = this.#reader!.read().runs.get(this.ids.decode(runId)!);
    const rivals = this.agents().filter((other) => other.machine.identity.agentId === machine.identity.agentId);
    return run !== undefined && run.lease_until !== null && run.lease_until > this.time.now() && rivals.length === 1;
  }

  /** From here on everything that is drawn comes from this step's own stream, whatever other steps there are. */
  beginStep(random: Random): void {
    this.#random = random;
    this.notes = [];
  }

  /** Goes on by itself; what it throws is the step's failure. */
  begin(work: Promise<unknown>): void {
    work.catch((error: unknown) => {
      if (!(error instanceof Unreachable)) this.#errors.push(error);
    });
  }

  /** Reads what is on disk now. @throws what somebody met with that nobody foresaw */
  look(): { before: Rows; now: Rows } {
    if (this.#errors.length > 0) throw this.#errors[0];
    const before = this.rows;
    this.rows = this.#reader!.read();
    this.memory.observe(before, this.rows, this.time.monotonic, this.time.now());
    return { before, now: this.rows };
  }

  endedByServer: RowReader['endedByServer'] = (run) => this.#reader!.endedByServer(run);

  deadLetter: RowReader['deadLetter'] = (taskId) => this.#reader!.deadLetter(taskId);
  needsAround: RowReader['needsAround'] = (taskId) => this.#reader!.needsAround(taskId);
  serialOf: RowReader['serialOf'] = (task) => this.#reader!.serialOf(task);
  paused: RowReader['paused'] = () => this.#reader!.paused();
  breaker: RowReader['breaker'] = (name) => this.#reader!.breaker(name);
  validInstance: RowReader['validInstance'] = (agentId) => this.#reader!.validInstance(agentId);

  async request<T>(machine: AgentMachine | null, call: (gateway: GatewayProcess) => Promise<T>): Promise<T> {
    const { weather } = this;
    const random = this.#random;
    const fate = [
      random.chance(weather.losesRequests),
      random.chance(weather.losesAnswers),
      random.chance(weather.repeats),
    ];
    const { gateway } = this;
    if (!gateway || gateway.dead || machine?.cutOff || fate[0]) throw new Unreachable('the request got lost');
    if (fate[2]) this.begin(gateway.call(() => call(gateway)).catch(() => undefined));
    const answer = await gateway.call(() => call(gateway));
    if (machine?.cutOff || fate[1]) throw new Unreachable('the answer got lost');
    return answer;
  }

  /** The gateway's next life on the same files. */
  async startGateway(): Promise<void> {
    await this.gateway?.bury();
    this.onDoubt();
    this.gateway = new GatewayProcess(this);
    this.memory.interruptedAt = this.time.monotonic;
    this.memory.jumpSeen = true;
    await this.gateway.start();
  }

  startAgent(machine: AgentMachine): AgentProcess {
    machine.process?.kill(true);
    machine.process = this.newAgent(machine);
    return machine.process;
  }

  newAgent(machine: AgentMachine): AgentProcess {
    this.#instances += 1;
    return new AgentProcess(machine, `i${this.#instances}`, this);
  }

  /** Every agent process that lives. */
  agents(): AgentProcess[] {
    const own = this.machines.flatMap(({ process }) => (process ? [process] : []));
    return [...own, ...this.clones.filter(({ dead }) => !dead)];
  }

  /** Time passes as usual, in pieces, each of them settled; `between` is called after each. */
  async pass(ms: number, between: () => void | Promise<void>): Promise<void> {
    for (let left = ms; left > 0; left -= PIECE_MS) {
      this.time.pass(Math.min(left, PIECE_MS));
      this.memory.jumpSeen ||= this.gateway?.dead === false && left >= 1_000;
      await this.time.settle();
      await between();
    }
  }

  /** Time passes and nobody notices until it is over: the gateway's process, or its machine, stood still. */
  async standStill(ms: number): Promise<void> {
    await this.time.settle();
    this.time.pass(ms);
    this.memory.interruptedAt = this.time.monotonic;
    this.memory.jumpSeen = true;
  }

  async end(): Promise<void> {
    this.#reader?.close();
    await this.gateway?.bury();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A real file, in memory where the system has such a folder: a simulated crash ends a process, not the machine, so nothing needs a disk. */
function memoryFolder(): string {
  return existsSync('/dev/shm') ? '/dev/shm' : tmpdir();
}

/** Several templates share it. */
const BREAKER = '{ name: site, threshold: 0.5, minimum: 2, window: 10m, cooldown: 20s';

const TEMPLATES: Record<string, string> = {
  plain: 'retry: { max: 3, base: 1s, factor: 2, cap: 1m, jitter: 0.5 }',
  once: 'retry: { max: 1 }',
  patient: 'retry: { max: 5, base: 10s, factor: 3, cap: 2m, jitter: 0.5 }',
  brief: 'timeout: 20s\nretry: { max: 2, base: 1s }',
  extra: 'pool: extra\nretry: { max: 2, base: 1s }',
  zoned: 'pool: extra\nlabels: { zone: b }',
  asking: 'onLost: ask',
  fragile: 'onLost: fail\nretry: { max: 4, base: 1s }',
  serial: 'serialKey: "{{n}}"\nretry: { max: 2, base: 1s }',
  single: 'concurrency: 1\nretry: { max: 2, base: 1s }',
  rated: 'rate: { per: 5s, max: 1 }',
  guarded: `breaker: ${BREAKER} }`,
  impatient: `breaker: ${BREAKER}, onOpen: fail }`,
};
/** Templates whose tasks nothing holds back but the agents that may take them. */
export const FREE_TEMPLATES: ReadonlySet<string> = new Set(['plain', 'once', 'patient', 'brief', 'extra', 'zoned']);
export const TEMPLATE_NAMES: readonly string[] = Object.keys(TEMPLATES);

/** The templates of all simulations; read once, never changed. */
export async function simulationTemplates(): Promise<TemplateRegistry> {
  const folder = await mkdtemp(join(memoryFolder(), 'errand-simulation-templates-'));
  await mkdir(folder, { recursive: true });
  for (const [id, more] of Object.entries(TEMPLATES)) {
    const head = `id: ${id}\ntitle: { en: ${id}, zh: ${id} }\nargs:\n  n: { type: string, max: 9 }\ncommand: [echo, "{{n}}"]\n`;
    await writeFile(join(folder, `${id}.yaml`), `${head}${more}\n`);
  }
  const templates = await loadTemplates(folder);
  rmSync(folder, { recursive: true, force: true });
  const problem = templates.problems()[0];
  if (problem) throw new Error(`a template of the simulation is wrong: ${JSON.stringify(problem)}`);
  return templates;
}
