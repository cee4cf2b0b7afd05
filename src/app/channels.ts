import type { Channel, ChannelPort } from '../channels/channel.ts';
import { createWebchatChannel } from '../channels/webchat/channel.ts';
import { DUPLICATE_WINDOW_MS } from '../channels/wecom/recent.ts';
import { menusOf } from '../commands/menus.ts';
import { COMMANDS } from '../commands/registry.ts';
import { createChannelPort } from '../intake/inbox.ts';
import type { Base } from './base.ts';

/** Channels whose platform drops an identical repeat, and for how long, milliseconds. */
export const SAFE_REPEAT = new Map([['wecom', DUPLICATE_WINDOW_MS]] as const);

export interface OpenChannels {
  /** By `channel/account`. */
  readonly channels: ReadonlyMap<string, Channel>;
  readonly webchatPort: ChannelPort;
}

/** The web chat, and whatever the settings name: what a platform needs is loaded where there is such a channel only. */
export async function openChannels(base: Base, onStored: () => void): Promise<OpenChannels> {
  const { store, outbox, clock, log, settings } = base;
  // One gateway per SQLite file: a restarted one is the same holder and need not wait for its predecessor's leases.
  const port = (channel: Channel['name']) =>
    createChannelPort({ store, channel, account: 'default', outbox, onStored, holder: 'gateway' });
  const webchatPort = port('webchat');
  const channels = [createWebchatChannel({ account: 'default', port: webchatPort, clock, log })];
  if (settings.telegram) channels.push(await telegram(base, settings.telegram, port('telegram')));
  if (settings.wecom) {
    const { createWecomChannel } = await import('../channels/wecom/wecom-channel.ts');
    channels.push(createWecomChannel({ ...settings.wecom, account: 'default', port: port('wecom'), clock, log }));
  }
  return { channels: new Map(channels.map((channel) => [`${channel.name}/${channel.account}`, channel])), webchatPort };
}

async function telegram(
  { clock, log, settings }: Base,
  own: NonNullable<Base['settings']['telegram']>,
  port: ChannelPort,
): Promise<Channel> {
  const { createTelegramChannel } = await import('../channels/telegram/channel.ts');
  const menus = menusOf(COMMANDS);
  const publicUrl = own.mode === 'webhook' ? { publicUrl: settings.publicUrl } : {};
  log.addSecret(own.token);
  return createTelegramChannel({ ...own, ...publicUrl, account: 'default', port, clock, log, menus });
}
