import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { OutgoingMessage, SendOutcome } from '../../src/channels/channel.ts';
import { silentLog } from '../../src/log.ts';
import { createDelivery, type Delivery } from '../../src/outbox/delivery.ts';
import { ERRANDS } from '../support/errands.ts';
import { Rooms } from '../support/rooms.ts';
import { type ScriptedChannel, scriptedChannel } from '../support/scripted-channel.ts';
import { until } from '../support/until.ts';

let rooms: Rooms;
let delivery: Delivery;
let channel: ScriptedChannel;
/** What is edited, in order. */
let edits: string[];

beforeEach(async () => {
  rooms = await Rooms.open({ templates: ERRANDS, lang: 'en', cards: new Set(['telegram']) });
  await rooms.pair('7');
  edits = [];
  channel = Object.assign(scriptedChannel(), {
    edit: async ({ text }: OutgoingMessage, platformId: string): Promise<SendOutcome> => {
      edits.push(text);
      return { outcome: 'sent', platformId };
    },
  });
  delivery = createDelivery({
    ...{ store: rooms.store, clock: rooms.clock, log: silentLog, outbox: rooms.outbox },
    ...{ channels: new Map([['telegram/default', channel]]), safeRepeat: new Map() },
  });
  await delivery.start();
});
afterEach(async () => {
  await delivery.stop();
  await rooms.close();
});

/** Time passes, and what is due by then goes. */
async function pass(ms: number): Promise<void> {
  rooms.clock.advance(ms);
  await until(async () => {
    delivery.wake();
    const now = rooms.clock.now();
    return (await rooms.sent()).every(
      ({ status, next_at }) => status !== 'sending' && !(status === 'pending' && next_at <= now),
    );
  }, 'what is due to go');
}

const firstLines = (texts: readonly string[]) => texts.map((text) => text.split('\n').slice(0, 2).join(' | '));

describe('the card of a task', () => {
  it('does not come for an errand that is over in a moment: the result is its only message', async () => {
    await rooms.say('7', 'greet Ada');
    const grant = await rooms.claim();
    await rooms.report(grant, { type: 'started' });
    await pass(1_000);
    await rooms.report(grant, { type: 'succeeded', summary: 'Hello!' });
    await pass(60_000);
    expect(firstLines(channel.texts())).toEqual([expect.stringMatching(/^✅ Hello — done/)]);
    expect(edits).toEqual([]);
  });

  it('tells that a task waits, then how it goes in the same message, and is one line when the result has come', async () => {
    await rooms.say('7', 'greet Ada');
    await pass(3_000);
    expect(channel.texts()).toEqual([
      expect.stringMatching(/^⏳ Hello is waiting to start\n\/why \w+ · \/cancel \w+$/),
    ]);
    const grant = await rooms.claim();
    await rooms.report(grant, { type: 'started' });
    await pass(1_500);
    await rooms.report(grant, { type: 'progress', percent: 40, message: 'rooms 1 to 4' });
    await pass(1_500);
    await rooms.report(grant, { type: 'succeeded', summary: 'Hello!' });
    await pass(1_500);
    expect(firstLines(edits)).toEqual([
      expect.stringMatching(/^▶️ Hello is running \| \/cancel \w+$/),
      '▶️ Hello | ▰▰▰▰▱▱▱▱▱▱ 40 %',
      expect.stringMatching(/^✅ Hello — done in \d+ s$/),
    ]);
    expect(firstLines(channel.texts()).slice(1)).toEqual([
      expect.stringMatching(/^✅ Hello — done in \d+ s \| Hello!$/),
    ]);
  });

  it('case 26: is edited no more often than every second and a half, with the newest word, and the result waits for no edit', async () => {
    await rooms.say('7', 'greet Ada');
    const grant = await rooms.claim();
    await rooms.report(grant, { type: 'started' });
    await pass(3_000);
    for (let percent = 1; percent <= 9; percent += 1) {
      await rooms.report(grant, { type: 'progress', percent: percent * 10 });
      await pass(1_000);
    }
    expect(edits.length).toBeLessThanOrEqual(6);
    await rooms.report(grant, { type: 'progress', percent: 95 });
    await rooms.report(grant, { type: 'succeeded', summary: 'Hello!' });
    const before = edits.length;
    await pass(0);
    expect(channel.texts().at(-1)).toMatch(/^✅ Hello — done/);
    expect(edits).toHaveLength(before);
    await pass(1_500);
    expect(edits.at(-1)).toMatch(/^✅ Hello — done in \d+ s$/);
    expect(edits).toHaveLength(before + 1);
  });

  it('stands in for the single messages of somebody who wants to hear of every change', async () => {
    await rooms.say('7', '/report 302 Ada');
    const grant = await rooms.claim();
    await rooms.report(grant, { type: 'started' });
    await pass(3_000);
    await rooms.report(grant, { type: 'failed', errorClass: 'transient', error: 'busy' });
    await pass(60_000);
    await rooms.report(await rooms.claim(), { type: 'succeeded', summary: 'ok' });
    await pass(1_500);
    expect(channel.texts().map((text) => text.split(' ')[0])).toEqual(['▶️', '✅']);
  });

  it('does not come for a task of which nothing is to be told', async () => {
    await rooms.say('7', '/run quiet');
    await pass(10_000);
    expect(channel.texts()).toEqual([]);
  });

  it('comes anew for a task that a person runs again', async () => {
    await rooms.say('7', 'greet Ada');
    await pass(3_000);
    await rooms.report(await rooms.claim(), { type: 'failed', errorClass: 'permanent', error: 'no such room' });
    await pass(1_500);
    await rooms.say('7', `/retry ${await rooms.lastTaskId()}`);
    await pass(3_000);
    expect(channel.texts().filter((text) => text.startsWith('⏳'))).toHaveLength(2);
  });
});
