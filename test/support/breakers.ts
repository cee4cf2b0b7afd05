import { Writable } from 'node:stream';
import type { ManualClock } from '../../src/clock.ts';
import { breakerPolicies } from '../../src/flows/template-breakers.ts';
import { readTemplate } from '../../src/flows/template-file.ts';
import { createLog } from '../../src/log.ts';
import { listBreakers } from '../../src/tasks/breaker-read.ts';
import { watchBreakers } from '../../src/tasks/breaker-watch.ts';
import { Breakers } from '../../src/tasks/breakers.ts';
import type { Claim, Grant } from '../../src/tasks/claim.ts';
import { Core } from './core.ts';

/** A core whose templates have breakers: `psb` and `psb-quick` share one, `plain` has none. */
export const PSB_TEMPLATES = [
  'id: psb\ncommand: [x]\nbreaker: { name: psb, minimum: 3 }\n',
  'id: psb-quick\ncommand: [x]\nbreaker: { name: psb, minimum: 3, onOpen: fail }\n',
  'id: plain\ncommand: [x]\n',
];

/** The task engine with breakers, and an agent whose claims ask them. */
export class BreakerCore {
  readonly core: Core;
  readonly breakers: Breakers;
  /** Lines of the log, parsed. */
  readonly lines: Record<string, unknown>[];
  /** How often waiting agents were told to look again. */
  freed = 0;

  private constructor(core: Core, lines: Record<string, unknown>[], breakers: Breakers) {
    this.core = core;
    this.lines = lines;
    this.breakers = breakers;
  }

  static async open(
    options: { folder?: string; clock?: ManualClock; templates?: readonly string[] } = {},
  ): Promise<BreakerCore> {
    const lines: Record<string, unknown>[] = [];
    const destination = new Writable({
      write: (line: Buffer, _encoding, done) => {
        lines.push(JSON.parse(String(line)) as Record<string, unknown>);
        done();
      },
    });
    const list = (options.templates ?? PSB_TEMPLATES).map((yaml) => {
      const reading = readTemplate('test', yaml);
      if ('problems' in reading) throw new Error(JSON.stringify(reading.problems));
      return reading.template;
    });
    let made: BreakerCore | undefined;
    const breakers = new Breakers({
      policies: breakerPolicies({ list: () => list }),
      log: createLog({ level: 'debug', destination }),
      onFreed: () => {
        if (made) made.freed += 1;
      },
    });
    const core = await Core.open({
      ...options,
      gates: { breakers },
      subscriber: (emit) => watchBreakers(breakers, emit),
    });
    made = new BreakerCore(core, lines, breakers);
    return made;
  }

  /** A new process on the same files. */
  async reopen(): Promise<BreakerCore> {
    await this.core.halt();
    return BreakerCore.open({ folder: this.core.folder, clock: this.core.clock });
  }

  /** A task of the template `psb` in a queue that holds nothing else. */
  create(template = 'psb'): Promise<number> {
    return this.core.create({ template, pool: 'psb' });
  }

  /** Claims from the queue of those tasks. */
  claimAll(agentId = 'a1', more: Partial<Claim> = {}): Promise<Grant[]> {
    return this.core.claimAll(agentId, { queues: ['psb/shell'], ...more });
  }

  /** Claims one and reports its start. */
  async run(agentId = 'a1', more: Partial<Claim> = {}): Promise<Grant> {
    const [grant] = await this.claimAll(agentId, more);
    if (!grant) throw new Error('there is nothing to claim');
    await this.core.tell(grant, { type: 'started' }, { agentId });
    return grant;
  }

  /** Three tasks fail for good, which opens the breaker. */
  async trip(): Promise<void> {
    for (let n = 0; n < 3; n += 1) {
      const id = await this.create();
      await this.core.tell(await this.run(), { type: 'failed', errorClass: 'transient', error: 'refused' });
      await this.core.cancel(id);
    }
  }

  async view(name = 'psb') {
    const views = await listBreakers(this.core.store, this.breakers.policies, this.core.clock.now());
    return views.find(({ breaker }) => breaker.name === name)!;
  }

  async state(name = 'psb'): Promise<string> {
    return (await this.view(name)).state;
  }

  async audit(): Promise<{ actor: string; action: string; target: string; data: unknown }[]> {
    const { build } = this.core.store.dialect;
    const query = build.selectFrom('audit').select(['actor', 'action', 'target', 'data']).orderBy('id');
    return (await this.core.store.fetch(query)).map((row) => ({ ...row, data: JSON.parse(row.data!) as unknown }));
  }
}
