import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type FakeWecom, startFakeWecom } from '../../support/fake-wecom.ts';

/** The fake has the platform's silent limits; without them the channel's tests would prove nothing. */
describe('the fake WeCom', () => {
  let fake: FakeWecom;
  let token: string;

  beforeEach(async () => {
    fake = await startFakeWecom({ now: () => 1_000_000 });
    const answer = await fetch(`${fake.url}/cgi-bin/gettoken?corpid=${fake.corpId}&corpsecret=${fake.secret}`);
    token = ((await answer.json()) as { access_token: string }).access_token;
  });
  afterEach(() => fake.stop());

  async function send(content: string, more: Record<string, unknown> = {}, accessToken = token): Promise<number> {
    const body = JSON.stringify({
      touser: 'A',
      msgtype: 'text',
      agentid: Number(fake.agentId),
      text: { content },
      ...more,
    });
    const answer = await fetch(`${fake.url}/cgi-bin/message/send?access_token=${accessToken}`, {
      method: 'POST',
      body,
    });
    return ((await answer.json()) as { errcode: number }).errcode;
  }

  it('cuts a long text, answers ok and notes the violation', async () => {
    expect(await send('a'.repeat(2_049))).toBe(0);
    expect(fake.history('a')).toEqual(['a'.repeat(2_048)]);
    expect(fake.violations).toHaveLength(1);
  });

  it('drops an identical text when asked to, and answers ok', async () => {
    expect(await send('x', { enable_duplicate_check: 1 })).toBe(0);
    expect(await send('x', { enable_duplicate_check: 1 })).toBe(0);
    expect(await send('x')).toBe(0);
    expect(fake.history('a')).toEqual(['x', 'x']);
  });

  it('drops the thirty-first message of a minute, answers ok and notes the violation', async () => {
    for (let n = 0; n < 31; n += 1) expect(await send(`m${n}`)).toBe(0);
    expect(fake.history('a')).toHaveLength(30);
    expect(fake.violations).toHaveLength(1);
  });

  it('refuses a foreign token, a foreign agent and an empty text', async () => {
    expect(await send('x', {}, 'other')).toBe(40014);
    expect(await send('x', { agentid: 1 })).toBe(40056);
    expect(await send('')).toBe(44004);
    expect(fake.history('a')).toEqual([]);
  });
});
