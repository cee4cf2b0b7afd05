import type { Channel, OutgoingMessage, Part } from '../../../src/channels/channel.ts';
import { createWecomChannel, type WecomChannelOptions } from '../../../src/channels/wecom/wecom-channel.ts';
import { type Clock, type ManualClock, manualClock } from '../../../src/clock.ts';
import { createLog } from '../../../src/log.ts';
import { asRich } from '../../../src/rich-text.ts';
import { serveDoors } from '../../support/door-server.ts';
import { type FakeWecom, type FakeWecomOptions, startFakeWecom } from '../../support/fake-wecom.ts';
import { type MemoryPort, memoryPort } from '../../support/memory-port.ts';

export const START_AT = Date.UTC(2026, 0, 5, 8);
export const USER = 'zhangsan';

/** One channel, its doors served over HTTP, and a fake WeCom that knows the way to both. */
export interface WecomRig {
  readonly fake: FakeWecom;
  readonly channel: Channel;
  readonly port: MemoryPort;
  readonly clock: ManualClock;
  logText(): string;
  send(
    said: string | Part,
    more?: Partial<OutgoingMessage> & { user?: string; signal?: AbortSignal },
  ): ReturnType<Channel['send']>;
  /** Another channel with the same settings and the same stored state: a restart, or a replica. */
  again(more?: Partial<WecomChannelOptions>): Channel;
  stop(): Promise<void>;
}

export interface RigOptions {
  readonly fake?: FakeWecomOptions;
  readonly channel?: Partial<WecomChannelOptions>;
  /** Instead of the manual clock, for the channel and the fake. */
  readonly clock?: Clock;
}

let sequence = 0;

export async function startRig(options: RigOptions = {}): Promise<WecomRig> {
  const manual = manualClock(START_AT);
  const clock = options.clock ?? manual;
  const fake = await startFakeWecom({ now: () => clock.now(), ...options.fake });
  const port = memoryPort();
  const lines: string[] = [];
  const log = createLog({ level: 'debug', destination: { write: (line: string) => void lines.push(line) } });
  const again = (more: Partial<WecomChannelOptions> = {}) =>
    createWecomChannel({
      corpId: fake.corpId,
      agentId: fake.agentId,
      secret: fake.secret,
      token: fake.token,
      encodingAesKey: fake.encodingAesKey,
      apiRoot: fake.url,
      timestampWindowMs: 600_000,
      account: 'default',
      port,
      clock,
      log,
      ...options.channel,
      ...more,
    });
  const channel = again();
  const doors = await serveDoors(() => channel.doors);
  fake.callbackUrl = `${doors.url}${channel.doors[0]!.path}`;
  await channel.start();
  return {
    fake,
    channel,
    port,
    clock: manual,
    logText: () => lines.join(''),
    send: (said, more = {}) => channel.send(outgoing(said, more), more.signal ?? AbortSignal.timeout(30_000)),
    again,
    stop: async () => {
      await channel.stop();
      await doors.stop();
      await fake.stop();
    },
  };
}

/** A message of its own id to `user`. */
export function outgoing(
  said: string | Part,
  more: Partial<OutgoingMessage> & { user?: string } = {},
): OutgoingMessage {
  sequence += 1;
  const { user = USER, id = `out${sequence}`, first = true, mayBeRepeat = false } = more;
  const route = more.route ?? { channel: 'wecom', account: 'default', chat: user, chatKind: 'direct' };
  return { ...asRich(said), id, route, first, mayBeRepeat };
}
