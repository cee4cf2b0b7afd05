import { afterEach, beforeEach, expect, it } from 'vitest';
import { digestText } from '../../src/outbox/digest-text.ts';
import { scriptedChannel } from '../support/scripted-channel.ts';
import { until } from '../support/until.ts';
import { final, Rig } from './rig.ts';

const DAY_MS = 86_400_000;
const AWAY = { outcome: 'retry', error: 'no connection', scope: 'channel' } as const;

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(() => rig.end());

it('after hours without the platform results flow in their order', async () => {
  const channel = scriptedChannel();
  channel.otherwise(() => AWAY);
  await rig.enqueue(...Array.from({ length: 14 }, (_, n) => final('1', `r${n}`, { taskId: n + 1 })));
  const delivery = await rig.deliver([channel]);
  await until(async () => (await rig.row('r0')).error !== null, 'the first failure');
  rig.clock.advance(5 * 3_600_000);
  channel.otherwise(() => ({ outcome: 'sent', platformId: 'x' }));
  delivery.wake();
  await until(async () => (await rig.statuses()).every((status) => status === 'sent'), 'all to be sent');
  expect(channel.arrived('1')).toEqual(Array.from({ length: 14 }, (_, n) => `r${n}`));
});

it('what is older than its time comes as one list that goes first, and its results count as delivered', async () => {
  const channel = scriptedChannel();
  channel.otherwise(() => AWAY);
  const ids = Array.from({ length: 14 }, (_, n) => n + 1);
  await rig.enqueue(...ids.map((id) => final('1', `done ${id}\nmore of it`, { taskId: id })));
  await rig.enqueue(final('1', '50 %', { kind: 'update', taskId: 99 }), final('2', 'alone', { taskId: 7 }));
  const delivery = await rig.deliver([channel]);
  await until(async () => (await rig.row('alone')).error !== null, 'a failure');
  rig.clock.advance(DAY_MS);
  await rig.enqueue(final('1', 'fresh', { taskId: 30 }));
  channel.otherwise(() => ({ outcome: 'sent', platformId: 'x' }));
  delivery.wake();
  await until(async () => (await rig.row('fresh')).status === 'sent', 'the fresh one');
  await until(() => channel.arrived('2').length === 1, 'the other chat');

  const [list, fresh, ...none] = channel.arrived('1');
  expect([fresh, none]).toEqual(['fresh', []]);
  const lines = list!.split('\n');
  expect(lines[0]).toBe('While you were away: 14 results');
  expect(lines.slice(1)).toEqual(ids.map((id) => `• done ${id} — /task ${rig.store.ids.encode(id)}`));
  expect(channel.arrived('2')).toEqual(['alone']);
  const delivered = rig.events.flatMap((event) => (event.type === 'outbox.sent' ? [event.taskId] : []));
  expect(delivered).toEqual(expect.arrayContaining([...ids, 7, 30]));
  expect((await rig.row('done 3\nmore of it')).error).toMatch(/listed/);
});

it('however long the platform stays away, it is one list', async () => {
  const channel = scriptedChannel();
  channel.otherwise(() => AWAY);
  await rig.enqueue(final('1', 'a'), final('1', 'b'));
  const delivery = await rig.deliver([channel]);
  await until(async () => (await rig.row('a')).error !== null, 'a failure');
  const lists = async () => (await rig.rows()).filter((row) => row.dedupe_key?.startsWith('digest:'));
  rig.clock.advance(DAY_MS);
  delivery.wake();
  await until(async () => (await lists())[0]?.error, 'the list to fail');
  await rig.enqueue(final('1', 'c'), final('1', 'd'));
  rig.clock.advance(DAY_MS);
  delivery.wake();
  await until(async () => (await lists())[0]?.text.includes('d'), 'the list to grow');
  channel.otherwise(() => ({ outcome: 'sent', platformId: 'x' }));
  rig.clock.advance(600_000);
  delivery.wake();
  await until(async () => (await lists())[0]?.status === 'sent', 'the list');
  expect(channel.arrived('1')).toEqual(['While you were away: 4 results\n• a\n• b\n• c\n• d']);
});

it('what a list has told can still be had whole', async () => {
  const channel = scriptedChannel();
  await rig.enqueue(final('1', 'a\nwhole'), final('1', 'b'));
  rig.clock.advance(DAY_MS);
  const delivery = await rig.deliver([channel]);
  await until(() => channel.calls.length === 1, 'the list');
  const { id } = await rig.row('a\nwhole');
  expect(await rig.resend(id)).toEqual([true]);
  delivery.wake();
  await until(() => channel.calls.length === 2, 'the message');
  expect(channel.texts()[1]).toBe('a\nwhole');
});

it('a list says what it lists, in the language of the messages, and stays short', () => {
  expect(
    digestText([
      { kind: 'final', text: '完成' },
      { kind: 'notice', text: 'x'.repeat(500) },
    ]),
  ).toBe(`你不在的时候：2 条消息\n• 完成\n• ${'x'.repeat(99)}…`);
  const many = digestText(Array.from({ length: 1_000 }, () => ({ kind: 'final', text: 'r' }))).split('\n');
  expect([many.length, many.at(-1)]).toEqual([52, '… and 950 more: /tasks']);
});
