import { it } from 'vitest';
import { ensurePage, launchBrowser, openPage } from '/work/main/test/support/browser.ts';
import { TestGateway } from '/work/main/test/support/gateway.ts';
import { createLoginLink } from '/work/main/src/sessions/logins.ts';
it('shots', async () => {
  await ensurePage();
  const b = await launchBrowser();
  const g = await TestGateway.start();
  await g.agent();
  for (const [w, h, scheme, locale] of [[390, 780, 'light', 'en-GB'], [1200, 800, 'light', 'en-GB'], [390, 780, 'dark', 'zh-CN'], [1200, 800, 'dark', 'en-GB']] as const) {
    const { page } = await openPage(b, g.url, { viewport: { width: w, height: h }, colorScheme: scheme, locale, ...(w === 390 ? {isMobile: true, hasTouch: true, deviceScaleFactor: 2} : {}) });
    const { path } = await createLoginLink(g.gateway.rooms.store, { userId: `ann${w}${scheme}`, name: 'Ann Lee' });
    await page.goto(g.url + path);
    await page.screenshot({ path: `/tmp/shot-${w}-${scheme}-0.png` });
    await page.getByRole('button').click();
    await page.waitForURL(g.url + '/chat');
    await page.waitForTimeout(500);
    await page.screenshot({ path: `/tmp/shot-${w}-${scheme}-1.png` });
    for (const t of ['/run hello name=Ada', '/status', '/help', 'line one\nline two\n  indented <b>not bold</b>', '/run hello name=张三']) {
      await page.getByRole('textbox').fill(t); await page.keyboard.press('Enter'); await page.waitForTimeout(900);
    }
    await page.getByRole('textbox').fill('a text that is being written\nwith a second line');
    await page.screenshot({ path: `/tmp/shot-${w}-${scheme}-2.png` });
    await page.context().close();
  }
  await b.close(); await g.stop();
});
