import type { Channel } from '../../../src/channels/channel.ts';
import { createWebchatChannel } from '../../../src/channels/webchat/channel.ts';
import { conversationOf } from '../../../src/http/routes/chat-identity.ts';
import { type ChannelRig, channelContract } from '../../contract/channel.contract.ts';
import { memoryPort } from '../../support/memory-port.ts';
import { until } from '../../support/until.ts';
import { ADMIN_TOKEN, type Browser, ChatRig } from './rig.ts';

const { route, sessionKey } = conversationOf('ann');

/**
 * The platform is our own: the chat API on a real server plays it, a browser that is signed in plays the person. A message counts as
 * received when the API shows it, so the outbox row of each send is written as the application writes it.
 */
async function setUp(): Promise<ChannelRig> {
  const port = memoryPort();
  const rig = await ChatRig.start({
    // Counted in memory first (that is what fails on demand), then stored for real.
    port: (real) => ({
      ...real,
      accept: async (batch, state) => {
        const results = await port.accept(batch, state);
        await real.accept(batch, state);
        return results;
      },
    }),
  });
  const browser = await rig.signIn('ann', 'Ann');
  const channel = createWebchatChannel({ account: 'default', port, clock: rig.clock, log: rig.log });
  const seen: string[] = [];
  const person = new Person(rig, browser);
  await channel.start();
  return {
    channel: { ...channel, send: (message, signal) => deliver(rig, channel, seen, message, signal) },
    port,
    route,
    secrets: [ADMIN_TOKEN, browser.cookie, browser.csrf],
    logText: () => rig.logText(),
    personWrites: (text) => person.writes(text),
    deliverAgain: (key) => person.deliver(key),
    confirmed: (key) => person.confirmed.has(key),
    received: () => seen,
    breakNextSend: async () => undefined,
    stop: async () => {
      await channel.stop();
      await rig.end();
    },
  };
}

class Person {
  readonly confirmed = new Set<string>();
  readonly #texts = new Map<string, string>();
  readonly #rig: ChatRig;
  readonly #browser: Browser;

  constructor(rig: ChatRig, browser: Browser) {
    this.#rig = rig;
    this.#browser = browser;
  }

  async writes(text: string): Promise<string> {
    const key = `m${this.#texts.size + 1}`;
    this.#texts.set(key, text);
    void until(async () => {
      await this.deliver(key);
      return this.confirmed.has(key);
    }, `${key} to be accepted`);
    return key;
  }

  async deliver(key: string): Promise<void> {
    const body = { text: this.#texts.get(key), messageId: key };
    const { status } = await this.#rig.call('/api/chat/messages', { as: this.#browser, body });
    if (status === 202) this.confirmed.add(key);
  }
}

async function deliver(
  rig: ChatRig,
  channel: Channel,
  seen: string[],
  ...[message, signal]: Parameters<Channel['send']>
) {
  await rig.store.transact('contract.enqueue', (tx) =>
    rig.outbox.enqueue(tx, [{ route: message.route, sessionKey, kind: 'reply', text: message.text }]),
  );
  const { body } = await rig.call('/api/chat/messages?user=ann&limit=1');
  seen.push(body.messages[0].text);
  return channel.send(message, signal);
}

channelContract('web chat', setUp, { faults: [] });
