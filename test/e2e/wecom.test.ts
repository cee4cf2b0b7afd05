import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { startFakeWecom } from '../support/fake-wecom.ts';
import { TestGateway } from '../support/gateway.ts';
import { inboxRows } from '../support/inbox.ts';
import { until } from '../support/until.ts';

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

interface Vector {
  id: string;
  token: string;
  encodingAESKey: string;
  corpid: string;
  msg_signature: string;
  timestamp: string;
  nonce: string;
  encrypt: string;
  rawQuery?: string;
}
const vectors = JSON.parse(readFileSync(new URL('../fixtures/wecom/vectors.json', import.meta.url), 'utf8')) as {
  positive: Vector[];
  negative: (Partial<Vector> & { id: string })[];
};
const official = vectors.positive.find((vector) => vector.id === 'official-url-verify-QDG6eK')!;
const post = vectors.positive.find(
  (vector) => vector.timestamp === '1409659813' && vector.msg_signature.startsWith('477715d1'),
)!;

async function officialHouse(): Promise<TestGateway> {
  const house = await TestGateway.start({
    WECOM_CORP_ID: official.corpid,
    WECOM_AGENT_ID: '218',
    WECOM_SECRET: 'a-secret-of-a-test',
    WECOM_TOKEN: official.token,
    WECOM_ENCODING_AES_KEY: official.encodingAESKey,
    WECOM_TIMESTAMP_WINDOW: 'off',
    WECOM_API_ROOT: 'http://127.0.0.1:9',
  });
  cleanups.push(() => house.stop());
  return house;
}

const envelope = (encrypt: string) =>
  `<xml><ToUserName><![CDATA[x]]></ToUserName><AgentID>218</AgentID><Encrypt><![CDATA[${encrypt}]]></Encrypt></xml>`;
const callback = (
  house: TestGateway,
  vector: { msg_signature: string; timestamp: string; nonce: string },
  body: string,
) =>
  fetch(
    `${house.url}/channels/wecom/callback?msg_signature=${vector.msg_signature}&timestamp=${vector.timestamp}&nonce=${vector.nonce}`,
    {
      method: 'POST',
      body,
      headers: { 'content-type': 'text/xml' },
    },
  );

describe('WeCom, through the gateway itself', () => {
  it("answers the official URL check with exactly the official sample's plaintext", async () => {
    const house = await officialHouse();
    const response = await fetch(`${house.url}/channels/wecom/callback?${official.rawQuery}`);
    expect(response.status).toBe(200);
    expect(await response.text()).toBe('1616140317555161061');
  });

  it('the official message, sent three times, is one row of the inbox and three empty 200s', async () => {
    const house = await officialHouse();
    for (let i = 0; i < 3; i += 1) {
      const response = await callback(house, post, envelope(post.encrypt));
      expect([response.status, await response.text()]).toEqual([200, '']);
    }
    const rows = await inboxRows(house.gateway.rooms.store);
    expect(rows.map(({ identity, text }) => ({ identity, text }))).toEqual([
      { identity: 'msg:4561255354251345929', text: 'hello' },
    ]);
  });

  it('a wrong signature, a body too large and a body that is no envelope are refused and leave no row', async () => {
    const house = await officialHouse();
    const wrong = await callback(house, { ...post, msg_signature: '0'.repeat(40) }, envelope(post.encrypt));
    expect(wrong.status).toBe(403);
    expect((await callback(house, post, '<!DOCTYPE x><xml/>')).status).toBe(400);
    expect((await callback(house, post, envelope('A'.repeat(100_000)))).status).toBe(413);
    expect(await inboxRows(house.gateway.rooms.store)).toEqual([]);
  });

  it('a template that a message asks for ends in exactly one message/send with the result', async () => {
    const wecom = await startFakeWecom();
    cleanups.push(() => wecom.stop());
    const house = await TestGateway.start({
      WECOM_CORP_ID: wecom.corpId,
      WECOM_AGENT_ID: wecom.agentId,
      WECOM_SECRET: wecom.secret,
      WECOM_TOKEN: wecom.token,
      WECOM_ENCODING_AES_KEY: wecom.encodingAesKey,
      WECOM_API_ROOT: wecom.url,
    });
    cleanups.push(() => house.stop());
    wecom.callbackUrl = `${house.url}/channels/wecom/callback`;
    await house.pair('wecom', 'zhangsan');
    await house.agent();
    const delivery = await wecom.userSends({ user: 'ZhangSan', text: '/run hello name=Ada' });
    expect(delivery).toMatchObject({ attempts: 1, status: 200, body: '' });
    await until(
      () => wecom.history('zhangsan').some((text) => text.includes('Hello, Ada')),
      'the result on the platform',
    );
    await until(async () => {
      const { body } = await house.api<{ tasks: { deliveryStatus: string }[] }>('GET', '/api/tasks');
      return body.tasks[0]?.deliveryStatus === 'delivered';
    }, 'the delivery to be on record');
    expect(wecom.count('message/send')).toBe(1);
    expect(wecom.violations).toEqual([]);
  });
});
