import { describe, expect, it } from 'vitest';
import { type FromKeeper, type LeasedRun, LeaseKeeper } from '../../../src/agents/worker/lease-keeper.ts';

const LEASE_MS = 30_000;
const SILENCE_MS = 300_000;
const A = { runId: 'a', leaseToken: 'ta' };
const B = { runId: 'b', leaseToken: 'tb' };

/** A keeper whose time is told, and a gateway that says `continue` unless told otherwise. */
function setUp() {
  const place = {
    now: 1_000,
    beats: [] as string[][],
    told: [] as FromKeeper[],
    fault: undefined as Error | undefined,
    action: 'continue' as 'continue' | 'cancel' | 'lost',
  };
  const keeper = new LeaseKeeper({
    beat: async (runs) => {
      if (place.fault) throw place.fault;
      place.beats.push(runs.map((run) => run.leaseToken));
      return runs.map(({ runId }) => ({ runId, action: place.action }));
    },
    isReplaced: (error) => error === REPLACED,
    tell: (message) => place.told.push(message),
    now: () => place.now,
    silenceMs: SILENCE_MS,
  });
  const taken = (runs: LeasedRun[], settled: string[] = []) =>
    keeper.hear({ type: 'taken', runs, settled, leaseMs: LEASE_MS });
  const renewed = (runs: LeasedRun[]) => keeper.hear({ type: 'renewed', runs, leaseMs: LEASE_MS });
  /** Time passes in looks of a second. */
  const pass = async (ms: number) => {
    for (const end = place.now + ms; place.now < end; ) {
      place.now += 1_000;
      await keeper.look();
    }
  };
  return { place, keeper, taken, renewed, pass };
}

const REPLACED = new Error('replaced');

describe('the keeper of leases', () => {
  it('sends nothing while the loop’s own heartbeats come through, nor without runs', async () => {
    const { place, taken, renewed, pass } = setUp();
    await pass(120_000);
    taken([A]);
    for (let beat = 0; beat < 20; beat += 1) {
      await pass(8_000);
      renewed([A]);
    }
    expect(place).toMatchObject({ beats: [], told: [] });
  });

  it('renews in time when the loop says nothing: twice at least in every lease, and asks it once whether it lives', async () => {
    const { place, taken, pass } = setUp();
    taken([A]);
    await pass(LEASE_MS);
    expect(place.beats.length).toBeGreaterThanOrEqual(2);
    expect(place.beats[0]).toEqual(['ta']);
    expect(place.told).toEqual([{ type: 'ping' }]);
  });

  it('stops after five minutes without a word of the loop, so that the leases run out; a word later it goes on', async () => {
    const { place, keeper, taken, pass } = setUp();
    taken([A]);
    await pass(SILENCE_MS - 1_000);
    const before = place.beats.length;
    expect(before).toBeGreaterThan(20);
    await pass(600_000);
    expect(place.beats).toHaveLength(before);
    keeper.hear({ type: 'alive' });
    await pass(1_000);
    expect(place.beats).toHaveLength(before + 1);
  });

  it('renews nothing while the agent withholds its heartbeat, until one of them is answered again', async () => {
    const { place, keeper, taken, renewed, pass } = setUp();
    taken([A]);
    keeper.hear({ type: 'withheld' });
    taken([B]);
    await pass(60_000);
    expect(place.beats).toEqual([]);
    renewed([A]);
    await pass(11_000);
    expect(place.beats).toEqual([['ta']]);
  });

  it('knows runs from the moment they are taken, and forgets what is settled', async () => {
    const { place, taken, renewed, pass } = setUp();
    taken([A]);
    taken([B], ['a']);
    await pass(10_000);
    expect(place.beats).toEqual([['tb']]);
    renewed([]);
    await pass(60_000);
    expect(place.beats).toHaveLength(1);
  });

  it('a new run does not make an older lease look fresh', async () => {
    const { place, taken, pass } = setUp();
    taken([A]);
    for (let more = 0; more < 5; more += 1) {
      await pass(4_000);
      taken([{ runId: `x${more}`, leaseToken: `x${more}` }]);
    }
    expect(place.beats.length).toBeGreaterThan(0);
  });

  it('tells the loop once what the gateway wants of a run, and again after it has spoken', async () => {
    const { place, keeper, taken, pass } = setUp();
    taken([A]);
    place.action = 'cancel';
    await pass(60_000);
    const told = () => place.told.filter(({ type }) => type === 'told');
    expect(told()).toEqual([{ type: 'told', runs: [{ runId: 'a', action: 'cancel' }] }]);
    keeper.hear({ type: 'alive' });
    await pass(11_000);
    expect(told()).toHaveLength(2);
  });

  it('tries again with the next look when the gateway is away, and ends for good when the instance is replaced', async () => {
    const { place, taken, pass } = setUp();
    taken([A]);
    place.fault = new Error('away');
    await pass(15_000);
    place.fault = undefined;
    await pass(1_000);
    expect(place.beats).toHaveLength(1);
    place.fault = REPLACED;
    await pass(11_000);
    place.fault = undefined;
    await pass(60_000);
    expect(place.beats).toHaveLength(1);
    expect(place.told.filter(({ type }) => type === 'replaced')).toHaveLength(1);
  });
});
