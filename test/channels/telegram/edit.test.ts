import { afterEach, describe, expect, it } from 'vitest';
import type { OutgoingMessage } from '../../../src/channels/channel.ts';
import { Floods } from '../../../src/channels/telegram/floods.ts';
import { manualClock } from '../../../src/clock.ts';
import { bold, rich } from '../../../src/rich-text.ts';
import { busy, dropAfter, refuse } from '../../support/fake-telegram/answers.ts';
import { say, type TelegramRig, telegramRig } from './rig.ts';

const CHAT = 42;
const GROUP = -4_455;
let rig: TelegramRig;
afterEach(() => rig?.stop());

/** A message that is there, and its platform id. */
async function sent(chat = CHAT): Promise<string> {
  rig = await telegramRig({ started: false });
  const outcome = await say(rig.channel, 'running', { chat: String(chat), chatKind: chat < 0 ? 'group' : 'direct' });
  return outcome.outcome === 'sent' ? outcome.platformId : '';
}

function edit(platformId: string, said: Pick<OutgoingMessage, 'text' | 'marks'>, chat = CHAT) {
  const route = { channel: 'telegram', account: 'default', chat: String(chat), chatKind: 'direct' } as const;
  const message = { ...said, id: 'm1', route, first: true, mayBeRepeat: false };
  return rig.channel.edit!(message, platformId, AbortSignal.timeout(30_000));
}

const edits = () => rig.fake.callsOf('editMessageText');

describe('a message is edited in place', () => {
  it('with its looks, and no second message comes', async () => {
    const id = await sent();
    expect(await edit(id, rich`${bold('done')} in 3 s`)).toEqual({ outcome: 'sent', platformId: id });
    expect(rig.fake.botTexts(CHAT)).toEqual(['done in 3 s']);
    expect(edits()[0]).toMatchObject({ entities: [{ type: 'bold', offset: 0, length: 4 }] });
  });

  it('case 29: the text being there already is a success', async () => {
    const id = await sent();
    expect(await edit(id, { text: 'running' })).toEqual({ outcome: 'sent', platformId: id });
    expect(edits()).toHaveLength(1);
  });

  it('plain, where Telegram does not understand its look', async () => {
    const id = await sent();
    rig.fake.script('editMessageText', refuse(400, "Bad Request: can't parse entities: unsupported"));
    expect(await edit(id, rich`${bold('done')}`)).toMatchObject({ outcome: 'sent' });
    expect(rig.fake.botTexts(CHAT)).toEqual(['done']);
    expect(edits()[1]).not.toHaveProperty('entities');
  });

  it.each([
    ['was deleted', 'Bad Request: message to edit not found'],
    ['is too old', "Bad Request: message can't be edited"],
  ])('not where it %s: said to be gone, so that it can come as a new one', async (_why, description) => {
    const id = await sent();
    rig.fake.script('editMessageText', refuse(400, description));
    expect(await edit(id, { text: 'done' })).toMatchObject({ outcome: 'permanent', gone: true, unreachable: false });
  });

  it('not in a group that became a supergroup: ids begin anew there', async () => {
    const id = await sent(GROUP);
    rig.fake.chats.of(GROUP).migratedTo = -1_001_234_567_890;
    expect(await edit(id, { text: 'done' }, GROUP)).toMatchObject({ outcome: 'permanent', gone: true });
  });

  it('later, where Telegram asks to wait; unknown, where the answer was lost', async () => {
    const id = await sent();
    rig.fake.script('editMessageText', busy(3), dropAfter());
    expect(await edit(id, { text: 'a' })).toMatchObject({ outcome: 'retry', scope: 'chat', afterMs: 3_000 });
    expect(await edit(id, { text: 'b' })).toMatchObject({ outcome: 'unknown' });
  });
});

describe('whose a refusal for too many calls is', () => {
  it('the chat’s, if that was written to within a minute or nobody knows; the whole bot’s, if that has got nothing', () => {
    const clock = manualClock(1_800_000_000_000);
    const floods = new Floods(clock);
    expect(floods.isOfWholeBot('1', 3_000)).toBe(false);
    clock.advance(60_000);
    expect(floods.isOfWholeBot('1', 3_000)).toBe(true);
    floods.written('1');
    expect(floods.isOfWholeBot('1', 3_000)).toBe(false);
    clock.advance(60_000);
    expect(floods.isOfWholeBot('1', 3_000)).toBe(true);
    // So long a pause is asked for by one chat's history.
    expect([floods.isOfWholeBot('1', 900_000), floods.isOfWholeBot('1', undefined)]).toEqual([false, false]);
  });
});
