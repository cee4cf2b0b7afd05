import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';

/** What the tests use of telegram-test-api, an emulator nobody here wrote. */
export interface Emulator {
  readonly config: { apiURL: string };
  start(): Promise<void>;
  stop(): Promise<boolean>;
  getClient(
    token: string,
    options: { chatId: number; userId: number; firstName?: string; timeout?: number },
  ): EmulatorClient;
}

interface EmulatorClient {
  makeMessage(text: string): unknown;
  makeCommand(text: string): unknown;
  makeCallbackQuery(data: string): unknown;
  sendMessage(message: unknown): Promise<unknown>;
  sendCommand(message: unknown): Promise<unknown>;
  sendCallback(query: unknown): Promise<unknown>;
  getUpdatesHistory(): Promise<unknown>;
}

/** Starts telegram-test-api on a free port. */
export async function startEmulator(): Promise<Emulator> {
  const TelegramServer = loadEmulator();
  const emulator = new TelegramServer({ port: await freePort(), host: '127.0.0.1', storage: 'RAM', storeTimeout: 600 });
  await emulator.start();
  return emulator;
}

type EmulatorClass = new (config: { port: number; host: string; storage: string; storeTimeout: number }) => Emulator;

function loadEmulator(): EmulatorClass {
  return createRequire(import.meta.url)('telegram-test-api') as EmulatorClass;
}

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  return port;
}
