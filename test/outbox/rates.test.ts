import { afterEach, expect, it } from 'vitest';
import type { Route } from '../../src/channels/channel.ts';
import { platformRates, type RatesOf } from '../../src/channels/rates.ts';
import { createWecomChannel } from '../../src/channels/wecom/wecom-channel.ts';
import { silentLog } from '../../src/log.ts';
import { type FakeWecom, startFakeWecom } from '../support/fake-wecom.ts';
import { memoryPort } from '../support/memory-port.ts';
import { type ScriptedChannel, scriptedChannel } from '../support/scripted-channel.ts';
import { until } from '../support/until.ts';
import { final, Rig, route, START } from './rig.ts';

let rig: Rig;
let fake: FakeWecom | undefined;
afterEach(async () => {
  await rig.end();
  await fake?.stop();
  fake = undefined;
});

const group = (chat: string): Route => ({ ...route(chat), chatKind: 'group' });
const texts = (count: number, chat: string, to: Route = route(chat)) =>
  Array.from({ length: count }, (_, n) => final(chat, `${chat} ${n}`, { route: to }));

/** Nothing is under way and every chat's next message has to wait. */
async function resting(channel: ScriptedChannel, count: number): Promise<void> {
  await until(
    async () => channel.calls.length >= count && (await rig.statuses()).every((status) => status !== 'sending'),
    `${count} calls`,
  );
}

/** Lets time pass in steps until all is sent; answers when each call was made. */
async function timesOf(channel: ScriptedChannel, stepMs: number): Promise<number[]> {
  const made: number[] = [];
  channel.otherwise(() => {
    made.push(rig.clock.now());
    return { outcome: 'sent', platformId: `${made.length}` };
  });
  const delivery = await rig.deliver([channel]);
  const isDone = async () => (await rig.statuses()).every((status) => status === 'sent');
  for (let n = 0; n < 2_000 && !(await isDone()); n += 1) {
    delivery.wake();
    const calls = made.length;
    // A look that finds nothing free changes nothing that could be waited for; one round trip of the store is enough to begin.
    for (let turn = 0; turn < 10 && made.length === calls; turn += 1) await new Promise((next) => setImmediate(next));
    await until(async () => (await rig.statuses()).every((status) => status !== 'sending'), 'the calls to end');
    rig.clock.advance(stepMs);
  }
  return made;
}

const most = (times: readonly number[], windowMs: number) =>
  Math.max(...times.map((end) => times.filter((at) => at <= end && at > end - windowMs).length));

it('Telegram: one person gets short bursts and one message a second, a group 20 a minute', async () => {
  rig = await Rig.create(platformRates);
  await rig.enqueue(...texts(10, '1'));
  const direct = await timesOf(scriptedChannel(), 250);
  expect(direct).toHaveLength(10);
  expect(most(direct, 3_000)).toBe(3);
  await rig.end();

  rig = await Rig.create(platformRates);
  await rig.enqueue(...texts(30, '-5', group('-5')));
  const grouped = await timesOf(scriptedChannel(), 1_000);
  expect(grouped).toHaveLength(30);
  expect(most(grouped, 60_000)).toBe(20);
  expect(grouped.at(-1)! - START).toBeLessThan(80_000);
});

it('Telegram: not more than 30 a second in all, and every chat gets its own', async () => {
  rig = await Rig.create(platformRates);
  for (let n = 0; n < 70; n += 1) await rig.enqueue(final(`c${n}`, `m${n}`));
  const times = await timesOf(scriptedChannel(), 100);
  expect(times).toHaveLength(70);
  expect(most(times, 1_000)).toBe(30);
  expect(times.at(-1)! - START).toBeLessThan(2_600);
});

it('what was used counts after a restart', async () => {
  rig = await Rig.create(platformRates);
  await rig.enqueue(...texts(5, '1'));
  const before = scriptedChannel();
  await rig.deliver([before]);
  await resting(before, 3);
  expect(before.calls).toHaveLength(3);
  await rig.crash();
  const after = scriptedChannel();
  const delivery = await rig.deliver([after]);
  delivery.wake();
  // Another chat goes at once, so the look has taken place.
  await rig.enqueue(final('2', 'other'));
  delivery.wake();
  await until(() => after.arrived('2').length === 1, 'the other chat');
  expect(after.arrived('1')).toEqual([]);
  rig.clock.advance(3_050);
  delivery.wake();
  await until(async () => (await rig.statuses()).every((status) => status === 'sent'), 'all to be sent');
  expect(after.arrived('1')).toEqual(['1 3', '1 4']);
});

it('a long message keeps to the rates too: it rests between its parts, and nothing gets between them', async () => {
  rig = await Rig.create(platformRates);
  const channel = scriptedChannel();
  await rig.enqueue(final('1', 'a|b|c|d|e', { kind: 'update' }));
  const delivery = await rig.deliver([channel]);
  await until(async () => (await rig.rows())[0]!.parts_sent === 3, 'three parts');
  await until(async () => (await rig.statuses())[0] === 'pending', 'the rest to wait');
  expect(channel.texts()).toEqual(['a', 'b', 'c']);
  await rig.enqueue(final('1', 'result'));
  rig.clock.advance(3_050);
  delivery.wake();
  await until(() => channel.calls.length === 6, 'the rest');
  expect(channel.texts()).toEqual(['a', 'b', 'c', 'd', 'e', 'result']);
  expect((await rig.row('a|b|c|d|e')).error).toBeNull();
});

it('two gateways together keep to the rates of one account', async () => {
  const three: RatesOf = () => ({ chat: [], account: [{ max: 3, windowMs: 1_000 }] });
  rig = await Rig.create(three);
  for (let n = 0; n < 8; n += 1) await rig.enqueue(final(`c${n}`, `m${n}`));
  const ids = (await rig.rows()).map((row) => row.id);
  const { lease } = rig.outbox.leases;
  const answers = await Promise.all([
    rig.store.transact('one', (tx) => lease.run(tx, ids.slice(0, 4))),
    rig.store.transact('other', (tx) => lease.run(tx, ids.slice(4))),
  ]);
  expect(answers.flat().filter((answer) => answer !== 'paced')).toHaveLength(3);
});

it('a clock that was set back holds nobody up', async () => {
  rig = await Rig.create(platformRates);
  const channel = scriptedChannel();
  await rig.enqueue(...texts(4, '1'));
  const delivery = await rig.deliver([channel]);
  await resting(channel, 3);
  rig.clock.set(START - 3_600_000);
  delivery.wake();
  await until(async () => (await rig.statuses()).every((status) => status === 'sent'), 'all to be sent');
});

it('a person is not sent more than WeCom would drop silently, over any minute and hour', async () => {
  rig = await Rig.create(platformRates);
  fake = await startFakeWecom({ now: () => rig.clock.now() });
  const { corpId, agentId, secret, token, encodingAesKey, url } = fake;
  const channel = createWecomChannel({
    ...{ corpId, agentId, secret, token, encodingAesKey, apiRoot: url, timestampWindowMs: 600_000, account: 'default' },
    ...{ port: memoryPort(), clock: rig.clock, log: silentLog },
  });
  await rig.enqueue(
    ...texts(70, 'zhangsan', route('zhangsan', 'wecom')),
    final('lisi', 'one', { route: route('lisi', 'wecom') }),
  );
  const tookMs = await rig.ride(channel);
  await channel.stop();
  expect(fake.violations).toEqual([]);
  expect(fake.history('zhangsan')).toEqual(Array.from({ length: 70 }, (_, n) => `zhangsan ${n}`));
  expect(fake.history('lisi')).toEqual(['one']);
  expect(tookMs).toBeLessThan(3 * 61_500);
});
