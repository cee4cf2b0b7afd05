import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AgentAlerts } from '../../src/health/agent-alerts.ts';
import { BACK_MS, CONFIRM_MS, offlineText } from '../../src/health/alert-words.ts';
import * as queries from '../../src/health/queries.ts';
import { silentLog } from '../../src/log.ts';
import { createOutbox } from '../../src/outbox/enqueue.ts';
import { sessionKeyOf } from '../../src/sessions/keys.ts';
import { touchSessions } from '../../src/sessions/sessions.ts';
import type { HotQuery } from '../../src/store/dialect.ts';
import { Core, type TestAgent } from '../support/core.ts';
import { planOf } from '../support/plans.ts';

const OFFLINE_MS = 90_000;
const route = (chat: string) => ({ channel: 'telegram', account: 'default', chat, chatKind: 'direct' }) as const;
const KEYS = ['7', '8'].map((chat) => sessionKeyOf(route(chat), chat));

let core: Core;
let alerts: AgentAlerts;
let monotonic = 0;
beforeEach(async () => {
  core = await Core.open();
  await greet();
  alerts = service();
});
afterEach(() => core.close());

const greet = () =>
  core.store.transact('test.sessions', (tx) =>
    touchSessions(
      tx,
      ['7', '8'].map((chat, index) => ({ sessionKey: KEYS[index]!, route: route(chat), at: tx.now })),
    ),
  );

function service(sessionKeys: readonly string[] = KEYS): AgentAlerts {
  const outbox = createOutbox({ instant: new Set(), emit: () => undefined });
  const { store, clock } = core;
  return new AgentAlerts({ store, clock, log: silentLog, outbox, sessionKeys, lang: 'en', monotonic: () => monotonic });
}

/** Time passes for everybody; the sweeper and the alerts look every 5 s, agents that are named speak each time. */
async function pass(ms: number, ...speaking: TestAgent[]): Promise<void> {
  for (let left = ms; left > 0; left -= 5_000) {
    core.clock.advance(5_000);
    monotonic += 5_000;
    for (const agent of speaking) await agent.beat([]);
    await core.store.transact('test.flush', (tx) => core.registry.flush(tx));
    await alerts.lookOnce();
  }
}

async function told(): Promise<string[]> {
  const rows = await core.store.fetch(core.store.dialect.build.selectFrom('outbox').selectAll().orderBy('id'));
  return rows.map(({ chat, text }) => `${chat}: ${text}`);
}

describe('alerts about agents', () => {
  test('an agent that goes away and comes back is told once each, to every conversation', async () => {
    const agent = core.agent('hotel-12');
    await agent.register();
    await pass(OFFLINE_MS + CONFIRM_MS - 10_000);
    expect(await told()).toEqual([]);
    await pass(600_000);
    expect(await told()).toEqual([
      expect.stringMatching(/^7: ⚠️ Agent hotel-12 is offline: nothing was heard of it for 2 min/),
      expect.stringMatching(/^8: ⚠️ Agent hotel-12 is offline/),
    ]);
    await pass(BACK_MS - 10_000, agent);
    expect(await told()).toHaveLength(2);
    await pass(60_000, agent);
    expect((await told()).slice(2)).toEqual([
      expect.stringMatching(/^7: ✅ Agent hotel-12 is back online after/),
      expect.stringMatching(/^8: ✅ Agent hotel-12 is back online after/),
    ]);
    await pass(600_000, agent);
    expect(await told()).toHaveLength(4);
  });

  test('while none of the conversations is known nothing counts as told: the first that speaks hears of it', async () => {
    const stranger = sessionKeyOf(route('9'), '9');
    alerts = service([stranger]);
    await core.agent('hotel-12').register();
    await pass(OFFLINE_MS + CONFIRM_MS + 60_000);
    expect(await told()).toEqual([]);
    await core.store.transact('test.session', (tx) =>
      touchSessions(tx, [{ sessionKey: stranger, route: route('9'), at: tx.now }]),
    );
    await pass(10_000);
    expect(await told()).toEqual([expect.stringMatching(/^9: ⚠️ Agent hotel-12 is offline/)]);
  });

  test('a conversation that speaks for the first time hears once of the agents that the others know to be away', async () => {
    const stranger = sessionKeyOf(route('9'), '9');
    alerts = service([KEYS[0]!, stranger]);
    for (const name of ['hotel-12', 'hotel-13']) await core.agent(name).register();
    await pass(OFFLINE_MS + CONFIRM_MS + 60_000);
    const agent = core.agent('hotel-13');
    await pass(BACK_MS + 60_000, agent);
    expect((await told()).map((text) => text.slice(0, 4))).toEqual(['7: ⚠', '7: ✅']);
    await core.store.transact('test.session', (tx) =>
      touchSessions(tx, [{ sessionKey: stranger, route: route('9'), at: tx.now }]),
    );
    await pass(60_000, agent);
    expect((await told()).slice(2)).toEqual([expect.stringMatching(/^9: ⚠️ Agent hotel-12 is offline/)]);
    // From here on it is one of them.
    await pass(BACK_MS + 60_000, agent, core.agent('hotel-12'));
    expect((await told()).slice(3)).toEqual([
      expect.stringMatching(/^7: ✅ Agent hotel-12 is back/),
      expect.stringMatching(/^9: ✅ Agent hotel-12 is back/),
    ]);
  });

  test('an agent that flaps is told of once, and as back only when it stays', async () => {
    const agent = core.agent('flappy');
    await agent.register();
    await pass(OFFLINE_MS + CONFIRM_MS + 10_000);
    expect(await told()).toHaveLength(2);
    for (let n = 0; n < 5; n += 1) {
      await pass(BACK_MS - 20_000, agent);
      await pass(OFFLINE_MS + CONFIRM_MS + 30_000);
    }
    expect(await told()).toHaveLength(2);
    await pass(BACK_MS + 20_000, agent);
    expect(await told()).toHaveLength(4);
  });

  test('a restart of the gateway repeats nothing and forgets nothing', async () => {
    const agent = core.agent('hotel-12');
    await agent.register();
    await pass(OFFLINE_MS + CONFIRM_MS + 10_000);
    expect(await told()).toHaveLength(2);
    core = await core.reopen();
    alerts = service();
    await pass(300_000);
    expect(await told()).toHaveLength(2);
    const after = core.agent('hotel-12');
    await pass(BACK_MS + 20_000, after);
    expect(await told()).toHaveLength(4);
  });

  test('a gateway that was away itself calls nobody absent before they could speak', async () => {
    const agent = core.agent('hotel-12');
    await agent.register();
    core = await core.reopen();
    alerts = service();
    core.clock.advance(3_600_000);
    await pass(CONFIRM_MS - 10_000);
    await pass(600_000, core.agent('hotel-12'));
    expect(await told()).toEqual([]);
  });

  test('many that go away together are one message', async () => {
    for (const name of ['a', 'b', 'c']) await core.agent(name).register();
    await pass(OFFLINE_MS + CONFIRM_MS + 10_000);
    expect(await told()).toEqual([
      expect.stringMatching(/^7: ⚠️ 3 agents are offline: a, b, c\./),
      expect.stringMatching(/^8: /),
    ]);
  });

  test('a conversation that never spoke is left out and the others are told', async () => {
    alerts = service(['agent:main:telegram:direct:404', KEYS[0]!]);
    await core.agent('hotel-12').register();
    await pass(OFFLINE_MS + CONFIRM_MS + 10_000);
    expect(await told()).toEqual([expect.stringMatching(/^7: ⚠️/)]);
  });

  test('hundreds of names make a short message', () => {
    const agents = Array.from({ length: 500 }, (_, n) => ({ agentId: `agent-${n}`, offlineAt: 0, seenAt: 0 }));
    expect(offlineText('en', agents, 60_000)).toMatch(/^⚠️ 500 agents are offline: agent-0, .* and 480 more\./);
    expect(offlineText('zh', agents, 60_000)).toContain('500 台执行机已离线');
  });
});

test('no statement walks a table that grows', () => {
  const connection = new Database(core.path, { readonly: true });
  try {
    for (const query of Object.values(queries) as HotQuery<never, unknown>[]) {
      // Agents are few, and of runs those alone that are held.
      const steps = planOf(connection, query).filter((step) => /SCAN (?!jsonb_each|r\b|agent\b|run USING)/.test(step));
      expect({ name: query.name, steps }).toEqual({ name: query.name, steps: [] });
    }
  } finally {
    connection.close();
  }
});
