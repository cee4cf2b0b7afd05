import { afterEach, describe, expect, it } from 'vitest';
import type { Channel, OutgoingMessage, Route, SendOutcome } from '../../src/channels/channel.ts';
import type { MemoryPort } from '../support/memory-port.ts';
import { until } from '../support/until.ts';

/**
 * What the platform does to the next call that sends a message.
 * `busy`: refuses it for being too many (429, errcode 45009). `cut`: accepts it, then drops the connection without an answer.
 * `blocked`: this person cannot be written to. `refused`: from now on nobody listens at the platform's address
 * (and kept-alive connections have been noticed to be closed: a call on one of those would be `cut`).
 */
export type SendFault = 'busy' | 'cut' | 'blocked' | 'refused';

/** One started channel against one fake platform, and the hands to play the platform and the person. */
export interface ChannelRig {
  /** Started. */
  readonly channel: Channel;
  /** The port the channel was built with. */
  readonly port: MemoryPort;
  /** A direct chat with a person who can be written to. */
  readonly route: Route;
  /** Texts that must never show: tokens, secrets, keys. */
  readonly secrets: readonly string[];
  /** Everything the channel has logged, as raw text from its log's destination. */
  logText(): string;
  /**
   * The person of `route` writes. The platform delivers by its own rules and, while the message is not confirmed, again and again,
   * in the background and without waiting seconds. Resolves with the platform's key of the message once it is on its way.
   */
  personWrites(text: string): Promise<string>;
  /** The platform delivers this same message once more. Resolves when the channel has answered that delivery. */
  deliverAgain(key: string): Promise<void>;
  /** Whether the channel has told the platform that it has this message (2xx, a higher offset). */
  confirmed(key: string): boolean;
  /** What the person of `route` has got from the bot, oldest first. */
  received(): readonly string[];
  /** Arranges what happens to the next sending call. Only asked for what `ContractOptions.faults` lists. */
  breakNextSend(fault: SendFault): Promise<void>;
  /** Stops the channel and the fake. */
  stop(): Promise<void>;
}

export interface ContractOptions {
  /** The faults this platform can have; a channel without an outside platform lists none. */
  readonly faults: readonly SendFault[];
  /** What `safe` says after a cut connection: whether the platform drops an identical repeat. */
  readonly repeatIsSafe?: boolean;
}

/** The suite every adapter passes against its fake platform: `channelContract('telegram', setUp, { faults: [...] })`. */
export function channelContract(name: string, setUp: () => Promise<ChannelRig>, options: ContractOptions): void {
  describe(`channel contract: ${name}`, () => {
    let rig: ChannelRig | undefined;
    const start = async () => {
      rig = await setUp();
      return rig;
    };
    afterEach(async () => {
      await rig?.stop();
      rig = undefined;
    });
    incoming(start);
    outgoing(start);
    for (const fault of options.faults) faulty(start, fault, options);
    secrecy(start, options);
  });
}

type Start = () => Promise<ChannelRig>;

function incoming(start: Start): void {
  it('a message that could not be stored is not confirmed, comes again and is stored once', async () => {
    const rig = await start();
    rig.port.failNext(2);
    const key = await rig.personWrites('/run hello');
    await until(() => rig.port.rejections === 2 && rig.port.rows.length === 1, 'the message to be stored');
    await until(() => rig.confirmed(key), 'the platform to be told');
    expect(rig.port.rows.map((row) => row.text)).toEqual(['/run hello']);
  });

  it('the same message delivered three times is one row', async () => {
    const rig = await start();
    const key = await rig.personWrites('once please');
    await until(() => rig.confirmed(key), 'the first delivery');
    await rig.deliverAgain(key);
    await rig.deliverAgain(key);
    await until(() => rig.port.duplicates === 2, 'both repeats to be recognised');
    expect(rig.port.rows).toHaveLength(1);
  });

  it('a message keeps its text, its sender and the way back', async () => {
    const rig = await start();
    await rig.personWrites('汉字 👩‍👩‍👧 <b>&amp;</b> 007');
    const row = await until(() => rig.port.rows[0], 'the message');
    expect(row).toMatchObject({ kind: 'text', text: '汉字 👩‍👩‍👧 <b>&amp;</b> 007', addressed: true });
    expect(row.sender.id).toBeTruthy();
    expect(row.route).toMatchObject({ ...rig.route, messageId: row.route.messageId });
    expect(await send(rig, 'an answer', row.route)).toMatchObject({ outcome: 'sent' });
    expect(rig.received()).toEqual(['an answer']);
  });

  it('messages of one person are stored in the order they were written', async () => {
    const rig = await start();
    const texts = Array.from({ length: 12 }, (_, n) => `message ${n}`);
    for (const text of texts) {
      const key = await rig.personWrites(text);
      await until(() => rig.confirmed(key), text);
    }
    expect(rig.port.rows.map((row) => row.text)).toEqual(texts);
    expect(new Set(rig.port.rows.map((row) => row.identity)).size).toBe(12);
  });
}

function outgoing(start: Start): void {
  it('a sent message appears once, with the platform’s id, and the channel is healthy', async () => {
    const rig = await start();
    const outcome = await send(rig, 'hello 你好 😀');
    expect(outcome).toEqual({ outcome: 'sent', platformId: expect.stringMatching(/./) });
    expect(rig.received()).toEqual(['hello 你好 😀']);
    await until(() => rig.channel.health().ok, 'the channel to be healthy');
  });

  it('a long text arrives whole and in order', async () => {
    const rig = await start();
    // A few parts on every platform; what is much longer becomes a file on some.
    const length = rig.channel.name === 'webchat' ? 4_000 : 400;
    const words = Array.from({ length }, (_, n) => `word${n}汉😀`);
    const parts = rig.channel.split({ text: words.join(' ') }).map(({ text }) => text);
    expect(parts.length).toBeGreaterThan(1);
    for (const [n, text] of parts.entries()) {
      expect(await send(rig, text, rig.route, n === 0)).toMatchObject({ outcome: 'sent' });
    }
    expect(rig.received()).toEqual(parts);
    expect(
      rig
        .received()
        .join(' ')
        .match(/word\d+汉😀/gu),
    ).toEqual(words);
  });

  it('any text can be sent: empty, blank, control characters, broken surrogates', async () => {
    const rig = await start();
    for (const text of ['', '   \n ', '\u0000\u0007', 'a\uD83D', '\uDE00b', ']]><x>&']) {
      for (const part of rig.channel.split({ text }))
        expect(await send(rig, part.text)).toMatchObject({ outcome: 'sent' });
    }
    expect(rig.received()).toHaveLength(6);
  });

  it('stopping twice is fine, and a channel that is started again works', async () => {
    const rig = await start();
    await rig.channel.stop();
    await rig.channel.stop();
    await rig.channel.start();
    await rig.personWrites('after the restart');
    await until(() => rig.port.rows.length === 1, 'the message');
    expect(await send(rig, 'an answer')).toMatchObject({ outcome: 'sent' });
  });
}

const EXPECTED = { busy: 'retry', cut: 'unknown', blocked: 'permanent', refused: 'retry' } as const;
const FAULT_NAMES = {
  busy: 'a busy platform means: not delivered, try again',
  cut: 'a connection that is cut after the message was accepted means: nobody knows',
  blocked: 'a person who has blocked the bot is out of reach for good',
  refused: 'a platform that cannot be connected to means: not delivered, try again',
} as const;

function faulty(start: Start, fault: SendFault, options: ContractOptions): void {
  it(FAULT_NAMES[fault], async () => {
    const rig = await start();
    await rig.breakNextSend(fault);
    const outcome = await send(rig, 'will it arrive');
    expect(outcome.outcome).toBe(EXPECTED[fault]);
    if (outcome.outcome === 'unknown') expect(outcome.safe).toBe(options.repeatIsSafe ?? false);
    if (outcome.outcome === 'permanent') expect(outcome.unreachable).toBe(true);
    expect(rig.received()).toEqual(fault === 'cut' ? ['will it arrive'] : []);
  });

  if (fault === 'refused') return;
  it(`after "${fault}" the next message to somebody who can be reached is sent`, async () => {
    const rig = await start();
    await rig.breakNextSend(fault);
    await send(rig, 'first');
    expect(await send(rig, 'second')).toMatchObject({ outcome: 'sent' });
    expect(rig.received().at(-1)).toBe('second');
  });
}

function secrecy(start: Start, options: ContractOptions): void {
  it('no credential shows in an outcome, the health or the log, whatever goes wrong', async () => {
    const rig = await start();
    const seen: unknown[] = [];
    for (const fault of [...options.faults].sort((a, b) => Number(a === 'refused') - Number(b === 'refused'))) {
      await rig.breakNextSend(fault);
      seen.push(await send(rig, 'anything'), rig.channel.health());
    }
    rig.port.failNext();
    if (!options.faults.includes('refused')) {
      const key = await rig.personWrites('stored at the second attempt');
      await until(() => rig.confirmed(key), 'the message to be stored');
    }
    await rig.channel.stop();
    const text = JSON.stringify([seen, rig.channel.health()]) + rig.logText();
    for (const secret of rig.secrets) expect(text).not.toContain(secret);
  });
}

let sequence = 0;

function send(rig: ChannelRig, text: string, route: Route = rig.route, first = true): Promise<SendOutcome> {
  sequence += 1;
  const message: OutgoingMessage = { id: `out${sequence}`, route, text, first, mayBeRepeat: false };
  return rig.channel.send(message, AbortSignal.timeout(30_000));
}
