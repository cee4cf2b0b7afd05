import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { SendOutcome } from '../../src/channels/channel.ts';
import type { NewMessage } from '../../src/outbox/message.ts';
import { type ScriptedChannel, scriptedChannel } from '../support/scripted-channel.ts';
import { until } from '../support/until.ts';
import { final, Rig, route } from './rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(() => rig.end());

const card = (text: string, more: Partial<NewMessage> = {}): NewMessage =>
  final('1', text, { kind: 'update', edits: { key: 'card' }, ...more });

/** A scripted channel that edits: what it was asked to, and what it answers. */
function editingChannel(answer: () => SendOutcome = () => ({ outcome: 'sent', platformId: 'same' })) {
  const edits: string[] = [];
  const channel: ScriptedChannel = Object.assign(scriptedChannel(), {
    edit: async ({ text }: { text: string }, platformId: string) => {
      edits.push(`${platformId}: ${text}`);
      return answer();
    },
  });
  return { channel, edits };
}

const isQuiet = async () => (await rig.statuses()).every((status) => status !== 'pending' && status !== 'sending');

describe('an edit', () => {
  it('is the message itself where there is none yet, and replaces its text afterwards', async () => {
    const { channel, edits } = editingChannel();
    await rig.enqueue(card('10 %'));
    const delivery = await rig.deliver([channel]);
    await until(isQuiet, 'the card');
    await rig.enqueue(card('20 %'));
    delivery.wake();
    await until(() => edits.length === 1, 'the edit');
    await until(isQuiet, 'the edit to be stored');
    expect(channel.texts()).toEqual(['10 %']);
    expect(edits).toEqual(['p1: 20 %']);
    expect((await rig.rows())[0]).toMatchObject({ dedupe_key: 'card', text: '20 %', platform_ids: '["p1"]' });
  });

  it('of what has not gone yet changes what will go; nothing more is sent', async () => {
    const { channel, edits } = editingChannel();
    await rig.enqueue(card('10 %'), card('20 %'));
    await rig.enqueue(card('30 %'));
    await rig.deliver([channel]);
    await until(isQuiet, 'the card');
    expect([channel.texts(), edits]).toEqual([['30 %'], []]);
    expect(await rig.rows()).toHaveLength(1);
  });

  it('case 27: of ten within a pause the last is made, once the pause is over', async () => {
    const { channel, edits } = editingChannel();
    await rig.enqueue(card('0'));
    const delivery = await rig.deliver([channel]);
    await until(isQuiet, 'the card');
    channel.next({ outcome: 'retry', error: '429', afterMs: 33_000, scope: 'chat' });
    await rig.enqueue(final('1', 'note', { kind: 'notice' }));
    delivery.wake();
    await until(async () => (await rig.row('note')).error === '429', 'the pause');
    for (let n = 1; n <= 10; n += 1) {
      await rig.enqueue(card(`${n}`));
      delivery.wake();
      rig.clock.advance(3_000);
    }
    expect(edits).toEqual([]);
    rig.clock.advance(3_000);
    delivery.wake();
    await until(() => edits.length > 0, 'the edit');
    await until(isQuiet, 'the end');
    expect(edits).toEqual(['p1: 10']);
    expect(channel.arrived('1')).toEqual(['0', 'note']);
  });

  it('case 29: with the text that is shown already is not made', async () => {
    const { channel, edits } = editingChannel();
    await rig.enqueue(card('same'));
    const delivery = await rig.deliver([channel]);
    await until(isQuiet, 'the card');
    await rig.enqueue(card('same'));
    delivery.wake();
    await until(isQuiet, 'the edit');
    expect(edits).toEqual([]);
    expect((await rig.statuses())[1]).toBe('superseded');
  });

  it('case 26: waits behind a result, which goes before all edits', async () => {
    const { channel, edits } = editingChannel();
    await rig.enqueue(card('0'));
    const delivery = await rig.deliver([channel]);
    await until(isQuiet, 'the card');
    const order: string[] = [];
    channel.otherwise(({ text }) => {
      order.push(text, `edits so far: ${edits.length}`);
      return { outcome: 'sent', platformId: 'x' };
    });
    await rig.store.transact('both', async (tx) => {
      await rig.outbox.enqueue(tx, [card('1')]);
      await rig.outbox.enqueue(tx, [final('1', 'result')]);
    });
    delivery.wake();
    await until(isQuiet, 'both');
    expect(order).toEqual(['result', 'edits so far: 0']);
    expect(edits).toEqual(['p1: 1']);
  });

  it('of a message that is gone at the platform comes anew, and the next edits that', async () => {
    let gone = true;
    const { channel, edits } = editingChannel(() =>
      gone
        ? { outcome: 'permanent', error: 'message to edit not found', unreachable: false, gone: true }
        : { outcome: 'sent', platformId: 'same' },
    );
    await rig.enqueue(card('0'));
    const delivery = await rig.deliver([channel]);
    await until(isQuiet, 'the card');
    await rig.enqueue(card('1'));
    delivery.wake();
    await until(() => channel.calls.length === 2, 'the new message');
    await until(isQuiet, 'the end');
    gone = false;
    await rig.enqueue(card('2'));
    delivery.wake();
    await until(() => edits.length === 2, 'the second edit');
    expect(channel.texts()).toEqual(['0', '1']);
    expect(edits).toEqual(['p1: 1', 'p2: 2']);
  });

  it('whose answer was lost is made again: twice is the same as once', async () => {
    const outcomes: SendOutcome[] = [{ outcome: 'unknown', error: 'cut', safe: false }];
    const { channel, edits } = editingChannel(() => outcomes.shift() ?? { outcome: 'sent', platformId: 'same' });
    await rig.enqueue(card('0'));
    const delivery = await rig.deliver([channel]);
    await until(isQuiet, 'the card');
    await rig.enqueue(card('1'));
    delivery.wake();
    await until(() => edits.length === 1, 'the first try');
    rig.clock.advance(60_000);
    delivery.wake();
    await until(isQuiet, 'the second try');
    expect(edits).toEqual(['p1: 1', 'p1: 1']);
    expect(channel.texts()).toEqual(['0']);
  });

  it('a card that is edited many times leaves two rows', async () => {
    const { channel, edits } = editingChannel();
    await rig.enqueue(card('0'));
    const delivery = await rig.deliver([channel]);
    await until(isQuiet, 'the card');
    for (let n = 1; n <= 5; n += 1) {
      await rig.enqueue(card(`${n}`));
      delivery.wake();
      await until(async () => edits.length === n && (await isQuiet()), `edit ${n}`);
    }
    expect(await rig.rows()).toHaveLength(2);
  });
});

describe('where the platform cannot edit', () => {
  it('how a task goes is not said again and again; anything else comes as a new message', async () => {
    const channel = scriptedChannel();
    await rig.enqueue(card('0'));
    const delivery = await rig.deliver([channel]);
    await until(isQuiet, 'the card');
    await rig.enqueue(card('1'));
    delivery.wake();
    await until(isQuiet, 'the edit');
    await rig.enqueue(card('done', { kind: 'notice' }));
    delivery.wake();
    await until(isQuiet, 'the notice');
    expect(channel.texts()).toEqual(['0', 'done']);
  });

  it('the web chat shows the row, so the row changes and its place stays', async () => {
    const web = (text: string) => card(text, { route: route('w', 'webchat'), sessionKey: 's' });
    await rig.enqueue(web('0'));
    await rig.enqueue(web('1'));
    expect(await rig.rows()).toMatchObject([{ dedupe_key: 'card', text: '1', status: 'sent' }]);
    expect(rig.events.at(-1)).toEqual({ type: 'outbox.edited', sessionKeys: ['s'] });
  });
});

it('one message among others costs what it did: no statement more', async () => {
  const names: string[] = [];
  await rig.store.transact('count', async (tx) => {
    const counting = {
      ...tx,
      now: tx.now,
      dialect: tx.dialect,
      retentionMs: tx.retentionMs,
      ids: (count: number) => tx.ids(count),
      afterCommit: (action: () => void) => tx.afterCommit(action),
      run: (query: Parameters<typeof tx.run>[0], params: never) => {
        names.push(query.name);
        return tx.run(query, params);
      },
      all: (query: Parameters<typeof tx.all>[0], params: never) => {
        names.push(query.name);
        return tx.all(query, params);
      },
    };
    await rig.outbox.enqueue(counting as unknown as typeof tx, [final('1', 'a', { dedupeKey: 'k' }), final('2', 'b')]);
  });
  expect(names).toEqual(['outbox.insert_new']);
});
