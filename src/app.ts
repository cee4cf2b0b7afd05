import { buildHouse } from './app/house.ts';
import { type Clock, systemClock } from './clock.ts';
import { databasePath, type GatewaySettings } from './config/gateway.ts';
import { adminToken } from './http/auth.ts';
import type { Rooms } from './http/rooms.ts';
import type { Log } from './log.ts';
import type { Service } from './service.ts';
import { openSqlite } from './store/sqlite.ts';
import { VERSION } from './version.ts';

/** The composition root: `app/` knows every room and hands lower ones their in-transaction subscribers. */
export interface GatewayOptions {
  settings: GatewaySettings;
  log: Log;
  clock?: Clock;
  /** Default: true. Tests that start many gateways do without. */
  reserveLog?: boolean;
}

export interface Gateway {
  /** Where it listens, for example `http://127.0.0.1:8787`. */
  readonly url: string;
  readonly adminToken: string;
  readonly rooms: Rooms;
  /** Graceful: no new work, running requests and sends end, everything else is rows. */
  stop(): Promise<void>;
}

/** @throws AppError store_locked, invalid_config: with nothing left running */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const { settings, log, clock = systemClock, reserveLog = true } = options;
  const token = adminToken(settings.stateDir, settings.adminToken);
  log.addSecret(token);
  const store = openSqlite({
    path: databasePath(settings.stateDir),
    clock,
    retentionMs: settings.retentionMs,
    reserveLog,
  });
  const started: Service[] = [];
  const stop = async () => {
    for (const service of started.splice(0).reverse()) await service.stop();
    await store.close();
  };
  try {
    const house = await buildHouse(settings, store, log, clock, token);
    for (const service of house.services) {
      await service.start();
      started.push(service);
    }
    const url = urlOf(house.server().address);
    log.info('gateway.started', { url, version: VERSION, channels: [...house.rooms.channels.keys()] });
    warnOffLoopback(settings, log);
    return { url, adminToken: token, rooms: house.rooms, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function urlOf({ host, port }: { host: string; port: number }): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

function warnOffLoopback(settings: GatewaySettings, log: Log): void {
  const loopback = settings.host === 'localhost' || settings.host === '::1' || settings.host.startsWith('127.');
  if (!loopback && !settings.publicUrl.startsWith('https:')) {
    log.warn('gateway.exposed', {
      host: settings.host,
      advice:
        'this address is not loopback and the traffic is not encrypted: put an HTTPS proxy in front and set ERRAND_PUBLIC_URL',
    });
  }
}
