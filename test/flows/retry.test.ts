import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { retryFlowsVerb } from '../../src/flows/retry.ts';
import { cancelFlowsVerb } from '../../src/flows/stop.ts';
import { Core } from '../support/core.ts';
import { diamond, fail, makeGraph, statuses, succeed } from '../support/graphs.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

type Four = [number, number, number, number];
const retryFlow = async (id: number) => (await core.store.write(retryFlowsVerb(core.emit), [{ id, by: 'eva' }]))[0]!;
const flowId = async (task: number) => (await core.flowOf(task)).id;
const audit = async () => {
  const rows = await core.store.fetch(core.store.dialect.build.selectFrom('audit').selectAll());
  return rows.filter(({ action }) => action.startsWith('flow.'));
};

describe('the retry of a flow', () => {
  it('runs again what failed, and brings back what was skipped because of it; what succeeded stays', async () => {
    const [a, b, c, d] = (await makeGraph(core, diamond())) as Four;
    await succeed(core, a);
    await fail(core, b);
    await succeed(core, c);
    expect(await statuses(core, [a, b, c, d])).toEqual(['succeeded', 'failed', 'succeeded', 'cancelled']);
    const flow = await flowId(a);
    expect(await retryFlow(flow)).toEqual({ result: 'retried', tasks: [b] });
    expect(await statuses(core, [a, b, c, d])).toEqual(['succeeded', 'queued', 'succeeded', 'waiting']);
    expect(await core.flowOf(a)).toMatchObject({ status: 'active', ended_at: null });
    expect(await audit()).toMatchObject([
      { actor: 'eva', action: 'flow.retried', target: `flow#${flow}`, data: JSON.stringify({ tasks: 1 }) },
    ]);
    await succeed(core, b);
    await succeed(core, d);
    expect(await core.flowOf(a)).toMatchObject({ status: 'finished' });
  });

  it('twice at once is one: the second finds it going on', async () => {
    const [a, b] = (await makeGraph(core, [{}, {}])) as [number, number];
    await fail(core, a);
    await fail(core, b);
    const flow = await flowId(a);
    const answers = await core.store.write(retryFlowsVerb(core.emit), [
      { id: flow, by: 'eva' },
      { id: flow, by: 'bob' },
    ]);
    expect(answers.map(({ result }) => result)).toEqual(['retried', 'refused']);
    expect(await audit()).toHaveLength(1);
  });

  it('of a cancelled one runs what was called off', async () => {
    const [a, b, c, d] = (await makeGraph(core, diamond())) as Four;
    await succeed(core, a);
    const flow = await flowId(a);
    await core.store.write(cancelFlowsVerb(core.emit), [{ id: flow, by: 'eva' }]);
    expect(await core.flowOf(a)).toMatchObject({ status: 'cancelled' });
    expect(await retryFlow(flow)).toMatchObject({ result: 'retried' });
    expect(await statuses(core, [a, b, c, d])).toEqual(['succeeded', 'queued', 'queued', 'waiting']);
    expect(await core.flowOf(a)).toMatchObject({ status: 'active', cancel_requested_at: null });
  });

  it('is refused while it is not over, when it succeeded, and where there is none', async () => {
    const [a] = (await makeGraph(core, [{}])) as [number];
    const flow = await flowId(a);
    expect(await retryFlow(flow)).toEqual({ result: 'refused', status: 'active' });
    await succeed(core, a);
    expect(await retryFlow(flow)).toEqual({ result: 'refused', status: 'finished' });
    expect(await retryFlow(999_999)).toEqual({ result: 'unknown' });
    expect(await audit()).toEqual([]);
  });
});
