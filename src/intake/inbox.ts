import type { AcceptResult, ChannelName, ChannelPort, IncomingMessage, Route } from '../channels/channel.ts';
import { randomToken } from '../ids.ts';
import type { Outbox } from '../outbox/enqueue.ts';
import { storable } from '../outbox/message.ts';
import type { Store } from '../store/store.ts';
import type { Tx, Verb } from '../store/tx.ts';
import { extraText } from './extra.ts';
import { getState, insertIncoming, putStates, takeLease } from './inbox/queries.ts';

export interface ChannelPortOptions {
  readonly store: Store;
  readonly channel: ChannelName;
  readonly account: string;
  /** Told that a chat has spoken, so that what waits for an unreachable one may go, and that a chat has another id. */
  readonly outbox?: Pick<Outbox, 'clearHold' | 'moveChat'>;
  /** Called after the commit of new messages: wakes the intake loop. Must not throw. */
  onStored(): void;
  /**
   * Who holds this process's leases; default: a name of this process alone. Where a lock admits one gateway to the store (SQLite),
   * pass a constant, so that a restarted gateway does not wait for the leases of its predecessor.
   */
  readonly holder?: string;
}

const THIS_PROCESS = randomToken(12);

/** The port of one channel account over the store; `ChannelPort` tells what it promises. */
export function createChannelPort(options: ChannelPortOptions): ChannelPort {
  const { store, channel, account } = options;
  const accept: Verb<Delivered, AcceptResult[]> = {
    name: 'inbox.accept',
    rank: 10,
    run: (tx, items) => acceptAll(tx, items, options),
  };
  return {
    async accept(messages, state) {
      if (messages.length === 0 && !state) return [];
      return (await store.write(accept, [{ messages, state }]))[0]!;
    },
    state: {
      async get<T>(key: string): Promise<T | undefined> {
        const [row] = await store.all(getState, { channel, account, key });
        return row && (JSON.parse(row.value) as T);
      },
      set: (key, value) => store.transact('channel_state.set', (tx) => put(tx, options, new Map([[key, value]]))),
    },
    lease: (name, ttlMs) =>
      store.transact('channel.lease', async (tx) => {
        const full = `${channel}/${account}/${name}`;
        const until = tx.now + ttlMs;
        return (
          (await tx.all(takeLease, { name: full, holder: options.holder ?? THIS_PROCESS, now: tx.now, until })).length >
          0
        );
      }),
  };
}

/** One call of `accept`. */
interface Delivered {
  readonly messages: readonly IncomingMessage[];
  readonly state: { readonly key: string; readonly value: unknown } | undefined;
}

async function acceptAll(tx: Tx, items: readonly Delivered[], options: ChannelPortOptions): Promise<AcceptResult[][]> {
  const messages = items.flatMap((item) => item.messages);
  const fresh = await insert(tx, messages, options);
  const states = new Map(items.flatMap(({ state }) => (state ? [[state.key, state.value] as const] : [])));
  if (states.size > 0) await put(tx, options, states);
  const news = messages.filter((_message, index) => fresh.has(index));
  if (news.length > 0) {
    await options.outbox?.clearHold(
      tx,
      news.map((message) => message.route),
    );
    const { channel, account } = options;
    for (const { moved } of news) if (moved) await options.outbox?.moveChat(tx, { channel, account, ...moved });
    tx.afterCommit(options.onStored);
  }
  let index = 0;
  return items.map((item) => item.messages.map(() => (fresh.has(index++) ? 'stored' : 'duplicate')));
}

/** Answers the places of those that are new. */
async function insert(
  tx: Tx,
  messages: readonly IncomingMessage[],
  options: ChannelPortOptions,
): Promise<ReadonlySet<number>> {
  if (messages.length === 0) return new Set();
  const first = await tx.ids(messages.length);
  const rows = messages.map((message, index) => inboxRow(message, first + index, options));
  return new Set((await tx.all(insertIncoming, { rows, now: tx.now })).map((row) => row.id - first));
}

function inboxRow(message: IncomingMessage, id: number, { channel, account }: ChannelPortOptions): unknown[] {
  const { identity, kind, route, sender, text, addressed, sentAt } = message;
  return [
    id,
    channel,
    account,
    storable(identity),
    kind,
    routeText(route),
    sender.id === undefined ? null : storable(sender.id),
    sender.name === undefined ? null : storable(sender.name),
    storable(text),
    addressed ? 1 : 0,
    sentAt === undefined ? null : Math.round(sentAt),
    extraText(message),
  ];
}

function routeText(route: Route): string {
  return JSON.stringify(route, (_key, value: unknown) => (typeof value === 'string' ? storable(value) : value));
}

async function put(
  tx: Tx,
  { channel, account }: ChannelPortOptions,
  states: ReadonlyMap<string, unknown>,
): Promise<void> {
  const rows = [...states].map(([key, value]) => [channel, account, key, JSON.stringify(value ?? null)]);
  await tx.run(putStates, { rows });
}
