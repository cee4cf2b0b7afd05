import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createLoginLink } from '../../src/sessions/logins.ts';
import {
  barriers,
  ensurePage,
  hasBrowser,
  launchBrowser,
  openPage,
  type SteadyAddress,
  steadyAddress,
  type WatchedPage,
} from '../support/browser.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

// With CI=true a missing browser is a failure, not a skip.
describe.skipIf(!hasBrowser && process.env.CI !== 'true')('the web chat in a browser', () => {
  let browser: Browser;
  let gateway: TestGateway;
  let address: SteadyAddress;
  const pages: WatchedPage[] = [];

  beforeAll(async () => {
    await ensurePage();
    browser = await launchBrowser();
  });
  afterAll(async () => browser?.close());
  beforeEach(async () => {
    gateway = await TestGateway.start();
    address = await steadyAddress(gateway.url);
  });
  afterEach(async () => {
    for (const watched of pages.splice(0)) await watched.close();
    await address.stop();
    await gateway.stop();
  });

  /** A person opens a login link and presses the button. */
  async function signIn(userId: string, name: string, options: BrowserContextOptions = {}): Promise<WatchedPage> {
    const watched = await openPage(browser, address.url, options);
    pages.push(watched);
    const { path } = await createLoginLink(gateway.gateway.rooms.store, { userId, name });
    await watched.page.goto(`${address.url}${path}`);
    await watched.page.getByRole('button').click();
    await watched.page.waitForURL(`${address.url}/chat`);
    return watched;
  }

  const field = (page: Page) => page.getByRole('textbox');
  const lines = (page: Page) => page.getByRole('log').locator('.text').allTextContents();
  const say = async (page: Page, text: string) => {
    await field(page).fill(text);
    await page.keyboard.press('Enter');
  };
  const connected = (page: Page, words: string) =>
    until(async () => (await page.getByRole('status').textContent()) === words, `"${words}"`);
  const sayAsAdmin = (text: string) => gateway.api('POST', '/api/chat/messages', { user: 'ann', text });

  it('a login link leads to the chat, where an errand is asked for and its result appears and stays after a reload', async () => {
    await gateway.agent();
    const { page, faults, strangers } = await signIn('ann', 'Ann');
    await page.getByText('What can I do for you?').waitFor();
    await say(page, '/run hello name=Ada');
    await until(async () => (await lines(page)).some((text) => text.includes('Hello, Ada!')), 'the result');
    const before = await lines(page);
    expect(before[0]).toBe('/run hello name=Ada');
    expect(await page.locator('.draft').count()).toBe(0);
    expect(await field(page).inputValue()).toBe('');
    await page.reload();
    await until(async () => (await lines(page)).length >= before.length, 'the history');
    expect(await lines(page)).toEqual(before);
    expect(faults).toEqual([]);
    expect(strangers).toEqual([]);
  });

  it('markup in messages is shown as text and does nothing', async () => {
    const { page, faults } = await signIn('ann', '<b>Ann</b>');
    const hostile =
      '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"><a href="javascript:alert(1)">x</a>';
    await say(page, hostile);
    await sayAsAdmin(`/no${hostile}`);
    await until(async () => (await lines(page)).length === 4, 'both answers');
    expect((await lines(page)).filter((text) => text.endsWith(hostile))).toHaveLength(2);
    expect(await page.locator('.log img, .log a, .log script, header b').count()).toBe(0);
    expect(await page.locator('header').textContent()).toContain('<b>Ann</b>');
    expect(await page.evaluate('window.hacked')).toBeUndefined();
    expect(faults).toEqual([]);
  });

  it('A41: what a program prints is shown as text in the page, and its raw output is no page', async () => {
    const printed =
      '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">[x](javascript:window.hacked=3)';
    const folder = await mkdtemp(join(tmpdir(), 'errand-hostile-'));
    const command = JSON.stringify(['printf', `\\033[31m${printed}\\033[0m`]);
    await writeFile(join(folder, 'print.yaml'), `id: print\ntitle: { en: Print, zh: Print }\ncommand: ${command}\n`);
    await gateway.stop();
    gateway = await TestGateway.start({ ERRAND_TEMPLATES_DIR: folder });
    address.pointTo(gateway.url);
    await gateway.agent();
    const { page, faults, strangers } = await signIn('ann', 'Ann');
    await say(page, '/run print');
    await until(async () => (await lines(page)).some((text) => text.includes(printed)), 'the result');
    expect(await page.locator('.log img, .log a, .log script').count()).toBe(0);
    expect(await page.evaluate('window.hacked')).toBeUndefined();
    expect([faults, strangers]).toEqual([[], []]);
    const { headers } = await fetch(`${gateway.url}/chat`, { redirect: 'manual' });
    expect(headers.get('content-security-policy')).not.toMatch(/script-src[^;]*'unsafe-/);
    expect(headers.get('content-security-policy')).toMatch(/(default|script)-src/);
    const [task] = (await gateway.api<{ tasks: { taskId: string }[] }>('GET', '/api/tasks')).body.tasks;
    const raw = await fetch(`${gateway.url}/api/tasks/${task!.taskId}/logs`, {
      headers: { authorization: `Bearer ${gateway.gateway.adminToken}` },
    });
    expect(await raw.text()).toContain('window.hacked');
    expect(raw.headers.get('content-type')).not.toMatch(/html|svg|xml/);
    expect(raw.headers.get('x-content-type-options')).toBe('nosniff');
    await rm(folder, { recursive: true, force: true });
  });

  it('a file that a program brings home is a link under its result, and what it leads to is the file', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'errand-files-'));
    const command = JSON.stringify([
      'sh',
      '-c',
      'printf "room,guest\\n12,Ada\\n" > "$ERRAND_ARTIFACTS/guests <12>.csv"',
    ]);
    await writeFile(join(folder, 'list.yaml'), `id: list\ntitle: { en: List, zh: List }\ncommand: ${command}\n`);
    await gateway.stop();
    gateway = await TestGateway.start({ ERRAND_TEMPLATES_DIR: folder });
    address.pointTo(gateway.url);
    await gateway.agent();
    const { page, faults } = await signIn('ann', 'Ann');
    await say(page, '/run list');
    const link = page.getByRole('list', { name: 'Files' }).getByRole('link', { name: 'guests <12>.csv' });
    await link.waitFor();
    expect(await page.getByRole('list', { name: 'Files' }).textContent()).toContain('18 bytes');
    const [download] = await Promise.all([page.waitForEvent('download'), link.click()]);
    expect(await readFile(await download.path(), 'utf8')).toBe('room,guest\n12,Ada\n');
    expect(download.suggestedFilename()).toMatch(/^guests .12.\.csv$/);
    expect(await barriers(page)).toEqual([]);
    expect(faults).toEqual([]);
    await rm(folder, { recursive: true, force: true });
  });

  it.each(['light', 'dark'] as const)('axe finds no barrier in the pages, %s', async (colorScheme) => {
    await gateway.agent();
    const watched = await openPage(browser, address.url, { colorScheme });
    pages.push(watched);
    await watched.page.goto(`${address.url}/chat`);
    await watched.page.getByRole('heading').first().waitFor();
    expect(await barriers(watched.page)).toEqual([]);
    const { path } = await createLoginLink(gateway.gateway.rooms.store, { userId: 'ann', name: 'Ann' });
    await watched.page.goto(`${address.url}${path}`);
    await watched.page.getByRole('button').waitFor();
    expect(await barriers(watched.page)).toEqual([]);
    await watched.page.getByRole('button').click();
    await watched.page.getByText('What can I do for you?').waitFor();
    expect(await barriers(watched.page)).toEqual([]);
    await say(watched.page, '/run hello name=Ada');
    await until(async () => (await lines(watched.page)).some((text) => text.includes('Hello, Ada!')), 'the result');
    expect(await barriers(watched.page)).toEqual([]);
  });

  it('what was said while the gateway was away and restarted appears once, in order, without a reload', async () => {
    const { page } = await signIn('ann', 'Ann');
    await connected(page, 'Connected');
    await say(page, 'before');
    await until(async () => (await lines(page)).length === 2, 'the answer');
    address.pointTo(null);
    await connected(page, 'Reconnecting…');
    await gateway.gateway.stop();
    await gateway.startGateway();
    await sayAsAdmin('meanwhile');
    await until(async () => {
      const { body } = await gateway.api<{ messages: unknown[] }>('GET', '/api/chat/messages?user=ann');
      return body.messages.length === 4;
    }, 'the answer to be stored');
    address.pointTo(gateway.url);
    await until(async () => (await lines(page)).length === 4, 'what was missed');
    await connected(page, 'Connected');
    await say(page, 'after');
    await until(async () => (await lines(page)).length === 6, 'the answer to the last');
    expect((await lines(page)).filter((_text, index) => index % 2 === 0)).toEqual(['before', 'meanwhile', 'after']);
  });

  it('a message that could not be sent stays, can be tried again, and is stored once', async () => {
    const { page } = await signIn('ann', 'Ann');
    await connected(page, 'Connected');
    address.pointTo(null);
    await say(page, 'are you there');
    await page.getByText('Not sent.').waitFor();
    address.pointTo(gateway.url);
    await page.getByRole('button', { name: 'Try again' }).click();
    await until(async () => (await lines(page)).length === 2, 'the answer');
    expect((await lines(page))[0]).toBe('are you there');
    expect(await page.locator('.draft').count()).toBe(0);
  });

  it('Enter sends, Shift+Enter makes a new line, and an unsent or blank text stays unsent', async () => {
    const { page } = await signIn('ann', 'Ann');
    await connected(page, 'Connected');
    await field(page).focus();
    await page.keyboard.type('first');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('second');
    expect(await field(page).inputValue()).toBe('first\nsecond');
    await page.keyboard.press('Enter');
    await until(async () => (await lines(page)).length === 2, 'the answer');
    expect((await lines(page))[0]).toBe('first\nsecond');
    await field(page).fill('  \n ');
    await page.keyboard.press('Enter');
    expect(await page.getByRole('button', { name: 'Send' }).isDisabled()).toBe(true);
    await field(page).fill('x'.repeat(8_001));
    await page.getByRole('alert').waitFor();
    await page.keyboard.press('Enter');
    await say(page, 'last');
    await until(async () => (await lines(page)).length === 4, 'the answer to the last');
    expect((await lines(page))[2]).toBe('last');
  });

  it('the Enter that ends the choice of a Chinese word does not send', async () => {
    const { page } = await signIn('ann', 'Ann');
    await connected(page, 'Connected');
    await field(page).fill('你好');
    const enter = "new KeyboardEvent('keydown', { key: 'Enter', isComposing: true, bubbles: true, cancelable: true })";
    await page.evaluate(`document.querySelector('textarea').dispatchEvent(${enter})`);
    expect(await field(page).inputValue()).toBe('你好');
    await page.keyboard.press('Enter');
    await until(async () => (await lines(page)).length === 2, 'the answer');
    expect((await lines(page))[0]).toBe('你好');
  });

  it('two tabs of one person show the same, other people see nothing of it', async () => {
    const first = await signIn('ann', 'Ann');
    const second = await first.page.context().newPage();
    await second.goto(`${address.url}/chat`);
    const stranger = await signIn('bob', 'Bob');
    for (const page of [first.page, second, stranger.page]) await connected(page, 'Connected');
    await say(second, 'hello from the second tab');
    for (const page of [first.page, second]) await until(async () => (await lines(page)).length === 2, 'the answer');
    expect(await lines(first.page)).toEqual(await lines(second));
    await say(stranger.page, 'mine');
    await until(async () => (await lines(stranger.page)).length === 2, 'the answer');
    expect((await lines(stranger.page))[0]).toBe('mine');
  });

  it('signing out shows the way back in, and the history is gone from the page', async () => {
    const { page } = await signIn('ann', 'Ann');
    await connected(page, 'Connected');
    await say(page, 'a secret');
    await until(async () => (await lines(page)).length === 2, 'the answer');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByText('You are signed out').waitFor();
    expect(await page.locator('body').textContent()).not.toContain('a secret');
    await page.reload();
    await page.getByText('You are signed out').waitFor();
  });

  it('a Chinese browser gets Chinese pages', async () => {
    const watched = await openPage(browser, address.url, { locale: 'zh-CN' });
    pages.push(watched);
    const { path } = await createLoginLink(gateway.gateway.rooms.store, { userId: 'li', name: '李雷' });
    await watched.page.goto(`${address.url}${path}`);
    await watched.page.getByRole('button', { name: '登录' }).click();
    await watched.page.getByText('有什么可以帮您？').waitFor();
    await connected(watched.page, '已连接');
    expect(await watched.page.locator('html').getAttribute('lang')).toBe('zh-CN');
    expect(await watched.page.getByRole('textbox', { name: '消息' }).count()).toBe(1);
  });

  it('on a phone nothing is wider than the screen, and the newest message is in view', async () => {
    const { page } = await signIn('ann', 'Ann', {
      viewport: { width: 390, height: 700 },
      hasTouch: true,
      isMobile: true,
    });
    await connected(page, 'Connected');
    for (let n = 0; n < 12; n += 1) await sayAsAdmin(`${n} ${'verylongword'.repeat(20)}`);
    await until(async () => (await lines(page)).length === 24, 'all answers');
    const sizes = await page.evaluate('[document.documentElement.scrollWidth, document.documentElement.scrollHeight]');
    expect(sizes).toEqual([390, 700]);
    const last = page.getByRole('log').locator('.text').last();
    await until(async () => {
      const box = await last.boundingBox();
      return box !== null && box.y > 0 && box.y + box.height <= 700;
    }, 'the newest message to be in view');
    expect(await field(page).isVisible()).toBe(true);
  });

  it('earlier messages can be called up', async () => {
    for (let n = 0; n < 75; n += 1) await sayAsAdmin(`question ${n}`);
    await until(async () => {
      const { body } = await gateway.api<{ messages: unknown[] }>('GET', '/api/chat/messages?user=ann&limit=200');
      return body.messages.length === 150;
    }, 'all answers');
    const { page } = await signIn('ann', 'Ann');
    await until(async () => (await lines(page)).length === 100, 'the last hundred');
    await page.getByRole('button', { name: 'Earlier messages' }).click();
    await until(async () => (await lines(page)).length === 150, 'all of it');
    const questions = (await lines(page)).filter((text) => text.startsWith('question'));
    expect(questions).toEqual(Array.from({ length: 75 }, (_, n) => `question ${n}`));
    expect(await page.getByRole('button', { name: 'Earlier messages' }).count()).toBe(0);
  });
});
