import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import axe from 'axe-core';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const CHROMIUM = process.env.CHROMIUM_PATH ?? '/usr/bin/chromium';

/** Whether browser tests can run here; with `CI=true` they must, and fail where they cannot. */
export const hasBrowser = process.env.CI === 'true' || existsSync(CHROMIUM);

/** A real Chromium without a window, which talks to nobody but the page. */
export function launchBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: CHROMIUM,
    headless: true,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
}

/** What keeps people with a screen reader, a keyboard or weak eyes out, as axe (axe-core) finds it: `rule: element`. */
export async function barriers(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  return page.evaluate(`axe.run().then(({ violations }) =>
    violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => id + ': ' + target.join(' ') + ' ' + failureSummary)))`);
}

/** A page in a profile of its own, with everything it complains about. */
export interface WatchedPage {
  readonly page: Page;
  /** Uncaught errors and refusals of the content security policy. */
  readonly faults: string[];
  /** Hosts other than the page's own that it asked for anything. */
  readonly strangers: string[];
  close(): Promise<void>;
}

export async function openPage(
  browser: Browser,
  home: string,
  options: BrowserContextOptions = {},
): Promise<WatchedPage> {
  const context = await browser.newContext({ locale: 'en-GB', viewport: { width: 1_200, height: 800 }, ...options });
  const page = await context.newPage();
  const faults: string[] = [];
  const strangers: string[] = [];
  page.on('pageerror', (error) => faults.push(error.message));
  page.on('console', (message) => {
    if (/Content Security Policy|violates/i.test(message.text())) faults.push(message.text());
  });
  page.on('dialog', (dialog) => {
    faults.push(`a dialog opened: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('request', (request) => {
    if (new URL(request.url()).host !== new URL(home).host) strangers.push(request.url());
  });
  return { page, faults, strangers, close: () => context.close() };
}

/** Builds the web chat page where it is missing or older than its sources. */
export async function ensurePage(): Promise<void> {
  const built = join(ROOT, 'dist', 'console', 'index.html');
  const builtAt = existsSync(built) ? (await stat(built)).mtimeMs : 0;
  if ((await newest(join(ROOT, 'console'))) < builtAt) return;
  await promisify(execFile)(
    process.execPath,
    [join(ROOT, 'node_modules/vite/bin/vite.js'), 'build', '--logLevel', 'warn'],
    { cwd: ROOT },
  );
}

async function newest(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return Math.max(...(await Promise.all(files.map(async (file) => (await stat(file)).mtimeMs))));
}

/** An address that stays the same while the gateway behind it is restarted on another port, and that can be out of reach. */
export interface SteadyAddress {
  readonly url: string;
  /** Where to: null cuts all connections and refuses new ones. */
  pointTo(url: string | null): void;
  stop(): Promise<void>;
}

export async function steadyAddress(target: string): Promise<SteadyAddress> {
  let port: number | null = Number(new URL(target).port);
  const open = new Set<Socket>();
  const server = createServer((incoming) => {
    if (port === null) return void incoming.destroy();
    const outgoing = connect(port, '127.0.0.1');
    for (const [one, other] of [
      [incoming, outgoing],
      [outgoing, incoming],
    ] as const) {
      open.add(one);
      one.on('error', () => other.destroy());
      one.on('close', () => {
        open.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const cut = () => {
    for (const socket of open) socket.destroy();
  };
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    pointTo(url) {
      port = url === null ? null : Number(new URL(url).port);
      if (url === null) cut();
    },
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        cut();
      }),
  };
}
