import { afterEach, describe, expect, it } from 'vitest';
import { platformRates } from '../../src/channels/rates.ts';
import { createTelegramChannel } from '../../src/channels/telegram/channel.ts';
import { createWecomChannel } from '../../src/channels/wecom/wecom-channel.ts';
import { silentLog } from '../../src/log.ts';
import type { NewMessage } from '../../src/outbox/message.ts';
import { REPEAT_MARK } from '../../src/outbox/sending.ts';
import { FAST } from '../channels/telegram/rig.ts';
import { type Behaviour, busy, dropAfter, dropBefore, serverError } from '../support/fake-telegram/answers.ts';
import { startFakeTelegram } from '../support/fake-telegram/fake-telegram.ts';
import { startFakeWecom, type WecomScript } from '../support/fake-wecom.ts';
import { memoryPort } from '../support/memory-port.ts';
import { Rig } from './rig.ts';

/*
 * 2,000 results for 50 chats at once, by the platform's own rates, through the real adapters and real HTTP, with refusals, server errors
 * and cut connections in between. The clock moves to the next moment at which something may go, so that a minute of the platform's
 * takes seconds, and how long it took is a figure of the rates alone.
 */
const CHATS = 50;
const RESULTS = 2_000;
const SEED = 20_261_201;

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Mulberry32. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const isGroup = (chat: number) => chat % 10 === 9;
/** Every tenth chat is a group, which gets less, as 20 a minute are allowed there. */
const RESULTS_OF_GROUP = 16;
const GROUPS = CHATS / 10;

/** How many results a chat gets. */
function countOf(chat: number): number {
  const direct = CHATS - GROUPS;
  const rest = RESULTS - GROUPS * RESULTS_OF_GROUP;
  const index = chat - Math.floor(chat / 10);
  return isGroup(chat) ? RESULTS_OF_GROUP : Math.floor(rest / direct) + (index < rest % direct ? 1 : 0);
}

/** Who gets what: `r<chat>.<number>`, the chats taking turns. */
function results(route: (chat: number) => NewMessage['route']): NewMessage[] {
  const chats = Array.from({ length: CHATS }, (_, chat) => chat);
  const rounds = Array.from({ length: Math.max(...chats.map(countOf)) }, (_, n) => n);
  return rounds.flatMap((n) =>
    chats
      .filter((chat) => n < countOf(chat))
      .map((chat) => ({ route: route(chat), kind: 'final', text: `r${chat}.${n}` })),
  );
}

/** What a chat shows: every result once and in order; second copies are marked. Answers the marked second copies. */
function secondCopies(shown: readonly string[], chat: number): string[] {
  const plain = shown.map((text) => text.replace(`${REPEAT_MARK}\n`, ''));
  const firsts = plain.filter((text, index) => plain.indexOf(text) === index);
  expect(firsts).toEqual(Array.from({ length: countOf(chat) }, (_, n) => `r${chat}.${n}`));
  const unmarked = shown.filter((text) => !text.startsWith(REPEAT_MARK));
  expect(new Set(unmarked).size).toBe(unmarked.length);
  return plain.filter((text, index) => plain.indexOf(text) !== index);
}

async function sentCount(rig: Rig): Promise<number> {
  return (await rig.statuses()).filter((status) => status === 'sent').length;
}

/** In how long so many calls can be made at the least, milliseconds. */
function leastOf(calls: number, { max, windowMs }: { max: number; windowMs: number }): number {
  return Math.floor((calls - 1) / max) * windowMs;
}

const share = (tookMs: number, leastMs: number) =>
  `${tookMs} ms of ${leastMs} that the rates allow, ${(tookMs / leastMs).toFixed(3)}`;

describe('a storm of 2,000 results for 50 chats', () => {
  it('on Telegram: all arrive once, in order and within the rates; a second copy only where a connection broke after it was taken', async () => {
    const rig = await Rig.create(platformRates);
    cleanups.push(() => rig.end());
    const fake = await startFakeTelegram({ now: () => rig.clock.now() });
    cleanups.push(() => fake.stop());
    const channel = createTelegramChannel({
      ...{ token: fake.token, account: 'default', apiRoot: fake.url, mode: 'polling', port: memoryPort() },
      ...{ clock: rig.clock, log: silentLog, timing: FAST },
    });
    const random = seeded(SEED);
    const cut = new Map<string, 'before' | 'after'>();
    fake.misfortune = ({ method, params }): Behaviour | undefined => {
      if (method !== 'sendMessage') return undefined;
      const luck = random();
      const text = String(params.text).replace(`${REPEAT_MARK}\n`, '');
      if (luck < 0.02) return busy(1 + Math.floor(random() * 3));
      if (luck < 0.04) return serverError();
      // Once more at most: a message whose repeat is lost as well is left to a person.
      if (luck >= 0.06 || cut.has(text)) return undefined;
      cut.set(text, luck < 0.05 ? 'before' : 'after');
      return luck < 0.05 ? dropBefore() : dropAfter();
    };
    const idOf = (chat: number) => (isGroup(chat) ? -1_000_000_000_100 - chat : 1_000 + chat);
    await rig.enqueue(
      ...results((chat) => ({
        ...{ channel: 'telegram', account: 'default', chat: String(idOf(chat)) },
        chatKind: isGroup(chat) ? 'group' : 'direct',
      })),
    );
    const tookMs = await rig.ride(channel);
    for (let chat = 0; chat < CHATS; chat += 1) {
      for (const text of secondCopies(fake.botTexts(idOf(chat)), chat)) expect(cut.get(text)).toBe('after');
    }
    expect(await sentCount(rig)).toBe(RESULTS);
    expect(fake.floods!.refused).toBe(0);
    const calls = fake.callsOf('sendMessage').map((params) => Number(params.chat_id));
    const of = (chat: number) => calls.filter((one) => one === chat).length;
    const leastMs = Math.max(
      leastOf(calls.length, { max: 30, windowMs: 1_000 }),
      ...[...new Set(calls)].map((chat) =>
        leastOf(of(chat), chat < 0 ? { max: 20, windowMs: 60_000 } : { max: 3, windowMs: 3_000 }),
      ),
    );
    console.log(`telegram: ${calls.length} calls, ${cut.size} cut: ${share(tookMs, leastMs)}`);
    expect(tookMs / leastMs).toBeLessThan(1.1);
  });

  it('on WeCom: all arrive once, in order and within the rates; the platform drops what it has seen', async () => {
    const rig = await Rig.create(platformRates);
    cleanups.push(() => rig.end());
    const fake = await startFakeWecom({ now: () => rig.clock.now() });
    cleanups.push(() => fake.stop());
    const channel = createWecomChannel({
      ...{ corpId: fake.corpId, agentId: fake.agentId, secret: fake.secret, token: fake.token },
      ...{ encodingAesKey: fake.encodingAesKey, apiRoot: fake.url, timestampWindowMs: 600_000, account: 'default' },
      ...{ port: memoryPort(), clock: rig.clock, log: silentLog },
    });
    const random = seeded(SEED);
    fake.misfortune = (path): WecomScript | undefined => {
      if (path !== 'message/send') return undefined;
      const luck = random();
      if (luck < 0.01) return { errcode: -1, errmsg: 'system busy' };
      if (luck < 0.02) return { http: 502 };
      if (luck < 0.025) return 'drop before accepting';
      return luck < 0.03 ? 'drop after accepting' : undefined;
    };
    await rig.enqueue(
      ...results((chat) => ({ channel: 'wecom', account: 'default', chat: `user${chat}`, chatKind: 'direct' })),
    );
    const tookMs = await rig.ride(channel);
    for (let chat = 0; chat < CHATS; chat += 1) expect(secondCopies(fake.history(`user${chat}`), chat)).toEqual([]);
    expect(await sentCount(rig)).toBe(RESULTS);
    expect(fake.violations).toEqual([]);
    // 30 at once, the others a minute later.
    const leastMs = leastOf(countOf(0), { max: 30, windowMs: 60_000 });
    console.log(`wecom: ${fake.count('message/send')} calls: ${share(tookMs, leastMs)}`);
    expect(tookMs / leastMs).toBeLessThan(1.1);
  });
});
