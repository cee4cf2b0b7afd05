import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { JoinRequest } from '../../src/agents/join-protocol.ts';
import { joinTokenByHash } from '../../src/agents/join-queries.ts';
import { JoinTokens } from '../../src/agents/join-tokens.ts';
import { tokenByHash } from '../../src/agents/queries.ts';
import { AgentQuota } from '../../src/agents/quota.ts';
import { AgentTokens } from '../../src/agents/tokens.ts';
import type { AppError } from '../../src/errors.ts';
import { Core, START } from '../support/core.ts';
import { planOf } from '../support/plans.ts';

const HOUR = 3_600_000;
const KEY = 'the-key-that-this-machine-made-up';
const GRANT = { agentId: 'hotel-12', pools: ['hotel-12'], labels: { city: 'sz' } };

let core: Core;
let tokens: AgentTokens;
let joins: JoinTokens;
const revoked: string[] = [];

beforeEach(async () => {
  core = await Core.open();
  core.clock.set(START);
  revoked.length = 0;
  tokens = new AgentTokens(core.store, { onRevoked: (agentId) => revoked.push(agentId) });
  joins = new JoinTokens(core.store, tokens);
});
afterEach(() => core.close());

const issue = async (grant: Parameters<JoinTokens['issue']>[0] = GRANT, ttlMs = HOUR) =>
  (await joins.issue(grant, ttlMs, 'test')).joinToken;
const redeem = (joinToken: string, more: Partial<JoinRequest> = {}) => joins.redeem({ joinToken, ...more });
/** The refusal as `code: message`. */
const refusal = async (call: Promise<unknown>) =>
  call.then(
    (answer) => `no refusal: ${JSON.stringify(answer)}`,
    (error: AppError) => `${error.code}: ${error.message}`,
  );
const rows = <T = Record<string, unknown>>(statement: string): T[] => {
  const connection = new Database(core.path, { readonly: true });
  try {
    return connection.prepare(statement).all() as T[];
  } finally {
    connection.close();
  }
};

describe('a join token', () => {
  it('gives its bearer a credential with the id, pools and labels that it fixes', async () => {
    const answer = await redeem(await issue());
    expect(answer).toEqual({ ...GRANT, agentToken: expect.stringMatching(/^agt_[\w-]{32}$/) });
    expect(await tokens.identify(answer.agentToken)).toEqual(GRANT);
  });

  it('is nowhere in the database, nor is the credential or the key of the machine', async () => {
    const joinToken = await issue();
    const { agentToken } = await redeem(joinToken, { machineKey: KEY });
    const all = ['join_token', 'agent_token', 'audit'].map((table) => JSON.stringify(rows(`select * from ${table}`)));
    for (const secret of [joinToken, agentToken, KEY]) expect(all.join()).not.toContain(secret);
  });

  it('works once: the second use says by whom and when it was used', async () => {
    const joinToken = await issue();
    await redeem(joinToken);
    const at = new Date(START).toISOString();
    expect(await refusal(redeem(joinToken))).toBe(
      `conflict: this join token was used already at ${at} by agent hotel-12; ask for a new one`,
    );
  });

  it('works once also when two machines ask in the same moment', async () => {
    const joinToken = await issue();
    const results = await Promise.allSettled([redeem(joinToken, { machineKey: KEY }), redeem(joinToken)]);
    expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(rows('select * from agent_token')).toHaveLength(1);
  });

  it('works until its time is over and not at that moment any more', async () => {
    const [first, second] = [await issue(), await issue()];
    core.clock.set(START + HOUR - 1);
    await redeem(first);
    core.clock.set(START + HOUR);
    const until = new Date(START + HOUR).toISOString();
    expect(await refusal(redeem(second))).toBe(
      `unauthorized: this join token was good until ${until}; ask for a new one`,
    );
    expect(rows('select * from agent_token')).toHaveLength(1);
  });

  it('that nobody issued is refused, and a credential is no join token', async () => {
    const { agentToken } = await redeem(await issue());
    for (const wrong of ['join_nothing', agentToken, "' or 1=1 --"])
      expect(await refusal(redeem(wrong))).toMatch(/^unauthorized: this join token is not known here/);
  });

  it('for one agent does not let a machine be another one, and stays good', async () => {
    const joinToken = await issue();
    expect(await refusal(redeem(joinToken, { agentId: 'hotel-13' }))).toBe(
      'forbidden: this join token is for agent hotel-12, not for hotel-13',
    );
    await redeem(joinToken, { agentId: 'hotel-12' });
  });

  it('is written down: who issued it, who joined, again or not', async () => {
    const joinToken = await issue();
    await redeem(joinToken, { machineKey: KEY });
    await redeem(joinToken, { machineKey: KEY });
    await joins.revokeAgent('hotel-12', 'test');
    const entries = rows<{ actor: string; action: string; target: string; data: string }>(
      'select * from audit order by id',
    );
    expect(entries.map(({ actor, action, target }) => [actor, action, target])).toEqual([
      ['test', 'join_token.issued', 'hotel-12'],
      ['agent:hotel-12', 'agent.joined', 'hotel-12'],
      ['agent:hotel-12', 'agent.joined', 'hotel-12'],
      ['test', 'agent_token.revoked', 'hotel-12'],
    ]);
    expect(entries.map(({ data }) => (JSON.parse(data) as { repeated?: boolean }).repeated)).toEqual([
      undefined,
      false,
      true,
      undefined,
    ]);
  });

  it('is forgotten a month after its end', async () => {
    await issue();
    core.clock.set(START + HOUR + 31 * 24 * HOUR);
    await issue();
    expect(rows('select * from join_token')).toHaveLength(1);
  });
});

describe('a join token for no agent by name', () => {
  const POOL = { pools: ['kiosks'], labels: {} };

  it('lets the machine choose: its wish, else the name of the machine', async () => {
    expect((await redeem(await issue(POOL), { agentId: 'kiosk-1', host: 'pc' })).agentId).toBe('kiosk-1');
    expect((await redeem(await issue(POOL), { host: 'kiosk-2' })).agentId).toBe('kiosk-2');
    expect(await refusal(redeem(await issue(POOL)))).toMatch(/^invalid_request: agentId: must be given/);
  });

  it('does not reach an agent that there is, or ever was', async () => {
    await redeem(await issue());
    const taken = /^conflict: there is an agent hotel-12 already/;
    expect(await refusal(redeem(await issue(POOL), { agentId: 'hotel-12' }))).toMatch(taken);
    await joins.revokeAgent('hotel-12', 'test');
    expect(await refusal(redeem(await issue(POOL), { host: 'hotel-12' }))).toMatch(taken);
    await core.agent('registered-only').register();
    expect(await refusal(redeem(await issue(POOL), { agentId: 'registered-only' }))).toMatch(/^conflict: /);
  });
});

describe('a lost answer', () => {
  it('may be asked for again by the same machine: it gets another credential, and the lost one is worth nothing', async () => {
    const joinToken = await issue();
    const lost = await redeem(joinToken, { machineKey: KEY });
    const again = await redeem(joinToken, { machineKey: KEY, agentId: 'hotel-12' });
    expect(again.agentToken).not.toBe(lost.agentToken);
    expect(await refusal(tokens.identify(lost.agentToken))).toMatch(/^unauthorized: /);
    expect(await tokens.identify(again.agentToken)).toEqual(GRANT);
  });

  it.each([
    ['by another machine', { machineKey: 'a-key-of-some-other-machine' }],
    ['without a key', {}],
    ['under another name', { machineKey: KEY, agentId: 'hotel-13' }],
  ])('is not given %s', async (_how, more) => {
    const joinToken = await issue();
    const { agentToken } = await redeem(joinToken, { machineKey: KEY });
    expect(await refusal(redeem(joinToken, more))).toMatch(/^conflict: this join token was used already/);
    expect(await tokens.identify(agentToken)).toEqual(GRANT);
  });

  it('cannot be asked for once the credential was used, after the end of the token, or after a revocation', async () => {
    const [used, late, shut] = [
      await issue(),
      await issue({ ...GRANT, agentId: 'b' }),
      await issue({ ...GRANT, agentId: 'c' }),
    ];
    const { agentToken } = await redeem(used, { machineKey: KEY });
    await redeem(late, { machineKey: KEY });
    await redeem(shut, { machineKey: KEY });
    await tokens.identify(agentToken);
    await joins.revokeAgent('c', 'test');
    const conflict = /^conflict: this join token was used already/;
    expect(await refusal(redeem(used, { machineKey: KEY }))).toMatch(conflict);
    expect(await refusal(redeem(shut, { machineKey: KEY }))).toMatch(conflict);
    core.clock.advance(HOUR);
    expect(await refusal(redeem(late, { machineKey: KEY }))).toMatch(conflict);
    expect(await tokens.identify(agentToken)).toEqual(GRANT);
  });
});

describe('a credential', () => {
  it('that came by a join ends the older ones of its agent when it is first used, not before', async () => {
    const old = await tokens.issue(GRANT);
    const other = await tokens.issue({ ...GRANT, agentId: 'hotel-13' });
    await tokens.identify(old);
    const { agentToken } = await redeem(await issue());
    expect(await tokens.identify(old)).toEqual(GRANT);
    expect(revoked).toEqual([]);
    await tokens.identify(agentToken);
    expect(revoked).toEqual(['hotel-12']);
    expect(await refusal(tokens.identify(old))).toBe(
      'unauthorized: this token of agent hotel-12 has been revoked; join again with a new join token',
    );
    expect((await tokens.identify(other)).agentId).toBe('hotel-13');
    expect(await tokens.identify(agentToken)).toEqual(GRANT);
  });

  it('that is issued for good leaves the others alone', async () => {
    const [first, second] = [await tokens.issue(GRANT), await tokens.issue(GRANT)];
    await tokens.identify(first);
    await tokens.identify(second);
    expect(await tokens.identify(first)).toEqual(GRANT);
  });

  it('costs one look-up and one write in its life, however often it is used', async () => {
    const token = await tokens.issue(GRANT);
    await tokens.identify(token);
    const [{ used_at: at }] = rows<{ used_at: number }>('select used_at from agent_token') as [{ used_at: number }];
    core.clock.advance(5_000);
    await tokens.identify(token);
    await new AgentTokens(core.store).identify(token);
    expect(at).toBe(START);
    expect(rows<{ used_at: number }>('select used_at from agent_token')[0]!.used_at).toBe(START);
  });

  it('that is revoked ends at once, also for a caller that was let in before, and takes unused join tokens along', async () => {
    const token = await tokens.issue(GRANT);
    const invitation = await issue();
    const identity = await tokens.identify(token);
    expect(tokens.isRevoked(identity)).toBe(false);
    expect(await joins.revokeAgent('hotel-12', 'test')).toBe(1);
    expect(tokens.isRevoked(identity)).toBe(true);
    expect(await refusal(tokens.identify(token))).toMatch(/^unauthorized: .*revoked/);
    expect(await refusal(redeem(invitation))).toMatch(/^unauthorized: this join token is not known here/);
    expect(await joins.revokeAgent('hotel-12', 'test')).toBe(0);
    expect(await joins.revokeAgent('nobody', 'test')).toBeUndefined();
  });

  it('that is revoked while it is looked up is not remembered', async () => {
    const token = await tokens.issue(GRANT);
    await Promise.allSettled([tokens.identify(token), tokens.revoke('hotel-12')]);
    expect(await refusal(tokens.identify(token))).toMatch(/^unauthorized: .*revoked/);
  });
});

describe('the quota', () => {
  it('lets a burst through, then as many calls as time has earned, each agent for itself', () => {
    let now = 0;
    const quota = new AgentQuota(10, () => now);
    const spend = (agentId = 'a', calls = 1) => {
      for (let i = 0; i < calls; i += 1) quota.spend(agentId);
    };
    spend('a', 20);
    expect(() => spend()).toThrow(expect.objectContaining({ code: 'rate_limited', retryAfterMs: 100 }));
    spend('b', 20);
    now = 50;
    expect(() => spend()).toThrow(expect.objectContaining({ retryAfterMs: 50 }));
    now = 100;
    spend();
    expect(() => spend()).toThrow();
    now = 1_000_000;
    spend('a', 20);
    expect(() => spend()).toThrow();
  });

  it('refuses a call before anything is done with it', async () => {
    const limited = new AgentTokens(core.store, { quota: new AgentQuota(1, () => 0) });
    const token = await limited.issue(GRANT);
    await limited.identify(token);
    await limited.identify(token);
    expect(await refusal(limited.identify(token))).toBe(
      'rate_limited: agent hotel-12 makes more calls than ERRAND_AGENT_RATE allows',
    );
  });
});

it.each([joinTokenByHash, tokenByHash])('$name looks one row up by an index', (query) => {
  const connection = new Database(core.path, { readonly: true });
  const steps = planOf(connection, query);
  connection.close();
  expect(steps).toEqual([expect.stringMatching(/^SEARCH \w+ USING INDEX sqlite_autoindex_\w+ \(token_hash=\?\)$/)]);
});
