import { afterEach, beforeEach, expect, it } from 'vitest';
import { liveState } from '../../src/commands/task-words.ts';
import { getTask } from '../../src/tasks/read.ts';
import { Core, START } from '../support/core.ts';
import { makeGraph } from '../support/graphs.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

it('a task that waits for others does not wait for a person', async () => {
  const [, waiting] = await makeGraph(core, [{}, { needs: [0] }]);
  const task = (await getTask(core.store, core.store.ids, waiting!))!;
  expect(liveState('en', task, START)).toBe('waits for other errands');
  expect(liveState('zh', task, START)).toBe('等待其他任务完成');
});
