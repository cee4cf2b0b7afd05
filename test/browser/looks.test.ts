import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readMarkdown } from '../../src/markdown.ts';
import { createLoginLink } from '../../src/sessions/logins.ts';
import { ensurePage, hasBrowser, launchBrowser, openPage } from '../support/browser.ts';
import { TestGateway } from '../support/gateway.ts';

// With CI=true a missing browser is a failure, not a skip.
describe.skipIf(!hasBrowser && process.env.CI !== 'true')('looks of messages in a browser', () => {
  let browser: Browser;
  let gateway: TestGateway;
  beforeAll(async () => {
    await ensurePage();
    browser = await launchBrowser();
    gateway = await TestGateway.start();
  });
  afterAll(async () => {
    await browser?.close();
    await gateway?.stop();
  });

  it('are elements; the words stay as they are, no markup becomes one, and what is very long is folded', async () => {
    const { store, outbox } = gateway.gateway.rooms;
    const { path } = await createLoginLink(store, { userId: 'ann', name: 'Ann' });
    const hostile = '<img src=x onerror="window.hacked = 1">';
    const said = readMarkdown(
      `# Title\n> **quoted ${hostile}**\n\`code\`\n\`\`\`js\na\n  b\n\`\`\`\n[page](https://x.test/a) [bad](javascript:window.hacked=2)`,
    );
    const route = { channel: 'webchat', account: 'default', chat: 'ann', chatKind: 'direct' } as const;
    const sessionKey = 'agent:main:webchat:direct:ann';
    const long = 'line\n'.repeat(3_000);
    await store.transact('test.say', (tx) =>
      outbox.enqueue(tx, [
        { route, sessionKey, kind: 'notice', ...said },
        { route, sessionKey, kind: 'notice', text: long },
      ]),
    );
    const watched = await openPage(browser, gateway.url);
    const { page, faults } = watched;
    await page.goto(`${gateway.url}${path}`);
    await page.getByRole('button').click();
    await page.getByText('Title').waitFor();
    const first = page.locator('.bot .text').first();
    expect(await first.textContent()).toBe(said.text);
    expect(await first.locator('strong').allTextContents()).toEqual(['Title', `quoted ${hostile}`]);
    expect(await first.locator('.quote strong').count()).toBe(1);
    expect(await first.locator('code').allTextContents()).toEqual(['code', 'a\n  b']);
    const links = await first.locator('a').all();
    expect(links).toHaveLength(1);
    expect(await links[0]!.getAttribute('href')).toBe('https://x.test/a');
    expect(await links[0]!.getAttribute('rel')).toBe('noopener noreferrer');
    expect(await page.locator('.log img').count()).toBe(0);
    const folded = page.locator('.bot .text').nth(1);
    const height = async () => (await folded.boundingBox())!.height;
    const before = await height();
    await page.getByRole('button', { name: 'Show all of it' }).click();
    expect(await height()).toBeGreaterThan(before * 2);
    expect(await page.evaluate('window.hacked')).toBeUndefined();
    expect(faults).toEqual([]);
    await watched.close();
  });
});
