import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readAgentSettings } from '../../src/config/agent.ts';
import { readGatewaySettings } from '../../src/config/gateway.ts';
import { ERROR_CODES } from '../../src/errors.ts';
import { requestPairing } from '../../src/sessions/pairing.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';
import { errand } from './errand.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const read = (path: string) => readFile(join(ROOT, path), 'utf8');

test('docs/errors.md is the table of error codes', async () => {
  const rows = [...(await read('docs/errors.md')).matchAll(/^\| `(\w+)` +\| (\d+) +\| (\d) +\| (.+?) +\|$/gm)];
  const told = rows.map(([, code, status, exit, title]) => [
    code,
    { status: Number(status), exit: Number(exit), title },
  ]);
  expect(told).toEqual(Object.entries(ERROR_CODES));
});

describe('the example settings', () => {
  interface Setting {
    name: string;
    value: string;
    isOn: boolean;
    comment: string | undefined;
  }

  async function settingsOf(path: string): Promise<Setting[]> {
    const lines = (await read(path)).split('\n');
    return lines.flatMap((line, index) => {
      const [, off, name, value] = /^(#?)([A-Z_]+)=(.*)$/.exec(line) ?? [];
      if (name === undefined || value === undefined) return [];
      return [{ name, value, isOn: off === '', comment: lines[index - 1] }];
    });
  }

  /** Names of the schema, and whether each has a default. The schemas are no exports. */
  async function schemaOf(path: string): Promise<Map<string, boolean>> {
    const text = await read(path);
    const entries = [...text.matchAll(/^ +((?:ERRAND|TELEGRAM|WECOM|AGENT)_[A-Z_]+): (.*(?:\n {6}.*)*)/gm)];
    return new Map(entries.map(([, name, schema]) => [name!, /\.(default|prefault)\(/.test(schema!)]));
  }

  const CLIENT = ['ERRAND_URL', 'ERRAND_TOKEN'];
  const UNSET_DEFAULT = new Set(['AGENT_LABELS', 'AGENT_HTTP_ALLOW']);

  for (const [example, schema, own] of [
    ['.env.example', 'src/config/gateway.ts', CLIENT],
    ['agent.env.example', 'src/config/agent.ts', []],
  ] as const) {
    test(`${example} has every setting once, with a line that says what it is`, async () => {
      const settings = await settingsOf(example);
      expect(settings.map(({ name }) => name).sort()).toEqual([...(await schemaOf(schema)).keys(), ...own].sort());
      for (const { name, comment } of settings.filter(({ name }) => name !== 'ERRAND_TOKEN'))
        expect({ name, comment }).toMatchObject({ comment: expect.stringMatching(/^# .*[.:]$/) });
    });
  }

  test('a gateway starts with every example value, and values that are defaults are the true ones', async () => {
    const settings = (await settingsOf('.env.example')).filter(({ name }) => !CLIENT.includes(name));
    expect(settings.some(({ isOn }) => isOn)).toBe(false);
    readGatewaySettings(Object.fromEntries(settings.map(({ name, value }) => [name, value])));
    const schema = await schemaOf('src/config/gateway.ts');
    const defaults = settings.filter(({ name }) => schema.get(name));
    expect(defaults.length).toBeGreaterThan(10);
    for (const { name, value } of defaults)
      expect({ name, read: readGatewaySettings({ [name]: value }) }).toEqual({ name, read: readGatewaySettings({}) });
  });

  test('an agent starts with every example value but its files, and values that are defaults are the true ones', async () => {
    const settings = (await settingsOf('agent.env.example')).filter(
      ({ name }) => name !== 'AGENT_CA_FILE' && name !== 'AGENT_SECRETS_FILE',
    );
    const needed = Object.fromEntries(settings.filter(({ isOn }) => isOn).map(({ name, value }) => [name, value]));
    expect(Object.keys(needed)).toEqual(['AGENT_GATEWAY_URL', 'AGENT_TOKEN']);
    readAgentSettings(Object.fromEntries(settings.map(({ name, value }) => [name, value])));
    const schema = await schemaOf('src/config/agent.ts');
    const defaults = settings.filter(({ name }) => schema.get(name) && !UNSET_DEFAULT.has(name));
    expect(defaults.length).toBeGreaterThan(5);
    for (const { name, value } of defaults)
      expect({ name, read: readAgentSettings({ ...needed, [name]: value }) }).toEqual({
        name,
        read: readAgentSettings(needed),
      });
  });
});

describe('docs/cli.md', () => {
  let gateway: TestGateway;
  const words = new Map<string, string>();
  beforeAll(async () => {
    gateway = await TestGateway.start();
    await gateway.agent('agent-1', { AGENT_CONCURRENCY: '3' });
    const submit = async (template: string, args: Record<string, unknown> = {}) =>
      (await gateway.api<{ taskId: string }>('POST', '/api/tasks', { template, args })).body.taskId;
    words.set('TASK', await submit('hello'));
    words.set('RUNNING', await submit('sleep', { seconds: 600 }));
    words.set('CANCELLED', await submit('sleep', { seconds: 600 }));
    const waiting = { template: 'hello', pool: 'nowhere' };
    words.set('WAITING', (await gateway.api<{ taskId: string }>('POST', '/api/tasks', waiting)).body.taskId);
    await gateway.api('POST', '/api/chat/messages', { text: '/run hello' });
    await gateway.api('POST', `/api/tasks/${words.get('CANCELLED')}/cancel`);
    for (const [word, status] of [
      ['TASK', 'succeeded'],
      ['CANCELLED', 'cancelled'],
      ['RUNNING', 'running'],
    ] as const) {
      await until(
        async () =>
          (await gateway.api<{ status: string }>('GET', `/api/tasks/${words.get(word)}`)).body.status === status,
        `${word} to be ${status}`,
      );
    }
    await until(
      async () => (await gateway.api<{ messages: { id: string }[] }>('GET', '/api/outbox?state=sent')).body.messages[0],
      'a message',
    );
    words.set('DEAD', await deadTask());
    await fillIn();
  });
  afterAll(() => gateway?.stop());

  /** One that no agent is there for. */
  async function deadTask(): Promise<string> {
    const task = { template: 'hello', pool: 'nowhere', ttl: 1 };
    const { taskId } = (await gateway.api<{ taskId: string }>('POST', '/api/tasks', task)).body;
    const isDead = async () => (await gateway.api('GET', `/api/dead-letters/${taskId}`)).status === 200;
    await until(isDead, 'a dead letter');
    return taskId;
  }

  async function fillIn(): Promise<void> {
    const { store } = gateway.gateway.rooms;
    const who = { channel: 'telegram', account: 'default', userId: '42' } as const;
    const pairing = await store.transact('test.pairing', (tx) =>
      requestPairing(tx, { ...who, route: { ...who, chat: '42', chatKind: 'direct' } }),
    );
    words.set('CODE', (pairing as { code: string }).code);
    await gateway.pair('telegram', '43');
    const { people } = (await gateway.api<{ people: { id: string; userId: string }[] }>('GET', '/api/access')).body;
    words.set('PERSON', people.find(({ userId }) => userId === '43')!.id);
    words.set('FLOW', (await gateway.api<{ flows: { flowId: string }[] }>('GET', '/api/flows')).body.flows[0]!.flowId);
    words.set(
      'SENT',
      (await gateway.api<{ messages: { id: string }[] }>('GET', '/api/outbox?state=sent')).body.messages[0]!.id,
    );
  }

  test('every example ends with the exit code it names', async () => {
    const block = /```console\n(.*?)```/s.exec(await read('docs/cli.md'))![1]!;
    const lines = block.trim().split('\n');
    expect(lines.length).toBeGreaterThan(20);
    const env = { ERRAND_URL: gateway.url, ERRAND_STATE_DIR: join(gateway.folder, 'state') };
    for (const line of lines) {
      const [, command = '', exit = '0'] = /^errand (.*?)(?:\s+# exit (\d).*)?$/.exec(line)!;
      const args = [...command.matchAll(/"([^"]*)"|(\S+)/g)].map(
        ([, quoted, plain]) => quoted ?? words.get(plain!) ?? plain!,
      );
      const { code, err } = await errand(args, { cwd: gateway.folder, env });
      expect({ line, code, err: code === Number(exit) ? '' : err }).toEqual({ line, code: Number(exit), err: '' });
    }
  }, 300_000);
});
