/** What a run may use, beyond its time (which the run itself watches) and its output (which is cut). Absent: unlimited. */
export interface RunLimits {
  /** Of all its processes together. */
  memoryBytes?: number;
  /** Processor cores, in the mean between two looks. */
  cpuCores?: number;
  /** Processor time in sum, milliseconds. */
  cpuTimeMs?: number;
}

/** What a run's processes use at one moment. */
export interface Usage {
  memoryBytes: number;
  /** Since its start, milliseconds; never less than at the look before. */
  cpuMs: number;
}

export type Resource = 'memory' | 'cpu' | 'cpu time';

/** A limit that was exceeded for too long. */
export interface Exceeded {
  resource: Resource;
  /** One sentence with limit and peak. */
  text: string;
}

export interface LimitRules {
  /** How long memory and cores may be over their limit, milliseconds. */
  overMs: number;
}

const NEAR = 0.9;
/** Ticks of the clock are coarse: a program that keeps one core busy is not over a limit of one. */
const CORES_TOLERANCE = 1.05;

/** Judges one run's use of the machine, look by look. Pure: time is handed in. */
export class LimitTracker {
  readonly #limits: RunLimits;
  readonly #rules: LimitRules;
  readonly #warned = new Set<Resource>();
  readonly #overSince = new Map<Resource, number>();
  #peakBytes = 0;
  #peakCores = 0;
  #last: { usage: Usage; at: number } | undefined;

  constructor(limits: RunLimits, rules: LimitRules) {
    this.#limits = limits;
    this.#rules = rules;
  }

  /** The most memory that was seen; 0 before the first look. */
  get peakBytes(): number {
    return this.#peakBytes;
  }

  /**
   * @param at monotonic milliseconds
   * @returns sentences to tell, each once in a run; and the limit that ends the run, where there is one
   */
  observe(usage: Usage, at: number): { warnings: string[]; exceeded?: Exceeded } {
    const cores = this.#coresSince(usage, at);
    this.#last = { usage, at };
    this.#peakBytes = Math.max(this.#peakBytes, usage.memoryBytes);
    this.#peakCores = Math.max(this.#peakCores, cores);
    const verdicts = [this.#memory(usage, at), this.#cores(cores, at), this.#cpuTime(usage)];
    return {
      warnings: verdicts.flatMap(({ warning }) => warning ?? []),
      exceeded: verdicts.find(({ exceeded }) => exceeded)?.exceeded,
    };
  }

  #memory({ memoryBytes }: Usage, at: number): Verdict {
    const limit = this.#limits.memoryBytes;
    if (limit === undefined) return {};
    const overMs = this.#overFor('memory', memoryBytes > limit, at);
    if (overMs !== undefined && overMs >= this.#rules.overMs) {
      const text = `memory: over the limit of ${mib(limit)} for ${seconds(overMs)}, ${mib(this.#peakBytes)} at its peak`;
      return { exceeded: { resource: 'memory', text } };
    }
    const isNear = memoryBytes >= NEAR * limit;
    const after = `over it for ${seconds(this.#rules.overMs)} the program is ended`;
    return this.#warnOnce('memory', isNear, `memory: ${mib(memoryBytes)} of ${mib(limit)} in use; ${after}`);
  }

  #cores(cores: number, at: number): Verdict {
    const limit = this.#limits.cpuCores;
    if (limit === undefined) return {};
    const isOver = cores > limit * CORES_TOLERANCE;
    const overMs = this.#overFor('cpu', isOver, at);
    if (overMs !== undefined && overMs >= this.#rules.overMs) {
      const text = `cpu: over the limit of ${round(limit)} cores for ${seconds(overMs)}, ${round(this.#peakCores)} at its peak`;
      return { exceeded: { resource: 'cpu', text } };
    }
    const after = `over it for ${seconds(this.#rules.overMs)} the program is ended`;
    return this.#warnOnce('cpu', isOver, `cpu: ${round(cores)} of ${round(limit)} cores in use; ${after}`);
  }

  /** Time that is used up never comes back: there is no grace. */
  #cpuTime({ cpuMs }: Usage): Verdict {
    const limit = this.#limits.cpuTimeMs;
    if (limit === undefined) return {};
    if (cpuMs > limit) {
      const text = `cpu time: over the limit of ${seconds(limit)}, ${seconds(cpuMs)} used`;
      return { exceeded: { resource: 'cpu time', text } };
    }
    const text = `cpu time: ${seconds(cpuMs)} of ${seconds(limit)} used; beyond it the program is ended`;
    return this.#warnOnce('cpu time', cpuMs >= NEAR * limit, text);
  }

  #warnOnce(resource: Resource, isDue: boolean, warning: string): Verdict {
    if (!isDue || this.#warned.has(resource)) return {};
    this.#warned.add(resource);
    return { warning };
  }

  /** How long this resource has been over its limit without a break; undefined where it is not. */
  #overFor(resource: Resource, isOver: boolean, at: number): number | undefined {
    if (!isOver) this.#overSince.delete(resource);
    else if (!this.#overSince.has(resource)) this.#overSince.set(resource, at);
    const since = this.#overSince.get(resource);
    return since === undefined ? undefined : at - since;
  }

  #coresSince(usage: Usage, at: number): number {
    if (!this.#last || at <= this.#last.at) return 0;
    return Math.max(0, usage.cpuMs - this.#last.usage.cpuMs) / (at - this.#last.at);
  }
}

interface Verdict {
  warning?: string;
  exceeded?: Exceeded;
}

/** For people: `512 MiB`. */
export function mib(bytes: number): string {
  return `${round(bytes / 1_048_576)} MiB`;
}

function seconds(ms: number): string {
  return `${round(ms / 1_000)} s`;
}

function round(value: number): string {
  return String(value < 10 ? Math.round(value * 10) / 10 : Math.round(value));
}
