import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ableToGoOn, findFault, MAX_NEEDS, type UnmetNeed } from '../../src/tasks/needs-graph.ts';

const CIRCLE = ': a task cannot need itself, not by way of others either';
const chain = (length: number) => Array.from({ length }, (_, index) => (index === 0 ? [] : [index - 1]));

describe('A63: the needs of a batch', () => {
  it.each<[string, (number | string)[][], [task: number, need: number, text: string]]>([
    ['a task that needs itself', [[0]], [0, 0, `0 → 0${CIRCLE}`]],
    ['two that need each other', [[1], [0]], [0, 0, `0 → 1 → 0${CIRCLE}`]],
    ['a circle behind a way in', [[1], [], [0, 3], [7], [], [], [], [2, 3]], [2, 1, `2 → 3 → 7 → 2${CIRCLE}`]],
    ['an index that names no task', [[], [0, 5]], [1, 1, 'there is no task 5 in this batch; it has tasks 0 to 1']],
    ['an index in a batch of one', [[1]], [0, 0, 'there is no task 1 in this batch; it has task 0 alone']],
    ['an index named twice', [[], [0, 0]], [1, 1, '0 is named twice']],
    ['an id named twice', [['k7q2', 'K7Q2']], [0, 1, 'K7Q2 is named twice']],
  ])('with %s are refused, by place and path', (_name, needs, [task, need, text]) => {
    expect(findFault(needs)).toEqual({ task, need, text });
  });

  it('a circle of three among 500 is found and named', () => {
    const needs: number[][] = chain(500);
    needs[100] = [300];
    needs[300] = [200];
    needs[200] = [100];
    expect(findFault(needs)).toEqual({ task: 100, need: 0, text: `100 → 300 → 200 → 100${CIRCLE}` });
  });

  it('of a long circle the beginning is named', () => {
    const needs: number[][] = chain(900);
    needs[0] = [899];
    expect(findFault(needs)!.text).toMatch(/^0 → 899 → 898 → .* → … → 0: /);
    expect(findFault(needs)!.text.length).toBeLessThan(300);
  });

  it.each<[string, (number | string)[][]]>([
    ['none', []],
    ['empty lists', [[], []]],
    ['a diamond', [[], [0], [0], [1, 2]]],
    ['needs of later tasks', [[2], [0], []]],
    ['ids of other tasks', [['k7q2'], ['k7q2', 0]]],
  ])('%s are legal', (_name, needs) => {
    expect(findFault(needs)).toBeUndefined();
  });

  it('a batch has so many needs and no more', () => {
    const row = (count: number) => [...Array(count).keys()];
    const needs = (last: number) => [...Array.from({ length: 600 }, () => [] as number[]), row(600), row(last)];
    expect(findFault(needs(MAX_NEEDS - 600))).toBeUndefined();
    expect(findFault(needs(MAX_NEEDS - 599))).toMatchObject({ task: 601, need: MAX_NEEDS - 600 });
  });

  it('the length of a chain is no matter of the stack', () => {
    // Longer than the limit, as ids of a flow can make it: only the search for circles is asked.
    const needs: UnmetNeed[] = Array.from({ length: 100_000 }, (_, index) => ({
      task: index,
      on: index === 0 ? -1 : index - 1,
      condition: 'success',
      status: index === 0 ? 'failed' : 'cancelled',
    }));
    expect(ableToGoOn(new Set(needs.map(({ task }) => task)), needs)).toEqual(new Set());
  });

  it('a circle is found exactly where there is one', () => {
    const graphs = fc
      .integer({ min: 1, max: 9 })
      .chain((size) =>
        fc.array(fc.uniqueArray(fc.nat(size - 1), { maxLength: 3 }), { minLength: size, maxLength: size }),
      );
    fc.assert(
      fc.property(graphs, (needs) => {
        const fault = findFault(needs);
        expect(fault !== undefined).toBe(!hasOrder(needs));
        if (fault) {
          const path = fault.text.split(':')[0]!.split(' → ').map(Number);
          for (const [step, node] of path.slice(0, -1).entries()) expect(needs[node]).toContain(path[step + 1]);
          expect([path[0], needs[fault.task]![fault.need]]).toEqual([path.at(-1), path[1]]);
        }
      }),
    );
  });
});

/** Whether the tasks can be done one after another, found by doing them. */
function hasOrder(needs: readonly (readonly number[])[]): boolean {
  const done = new Set<number>();
  for (let round = 0; round < needs.length; round += 1)
    for (const [task, list] of needs.entries()) if (list.every((on) => done.has(on))) done.add(task);
  return done.size === needs.length;
}

describe('what can go on', () => {
  const need = (
    task: number,
    on: number,
    status: UnmetNeed['status'],
    condition: UnmetNeed['condition'] = 'success',
  ) => ({
    task,
    on,
    condition,
    status,
  });
  it.each<[string, number[], UnmetNeed[], number[]]>([
    ['a need that runs', [1], [need(1, 0, 'running')], [1]],
    ['a need that has failed', [1], [need(1, 0, 'failed')], []],
    ['a need that has failed and is to go on as well', [0, 1], [need(1, 0, 'failed')], [0, 1]],
    ['a need that is gone', [1], [need(1, 0, null)], []],
    ['a need whose end alone counts', [1], [need(1, 0, 'failed', 'always')], [1]],
    [
      'a chain behind a failure',
      [1, 2, 3],
      [need(1, 0, 'failed'), need(2, 1, 'cancelled'), need(3, 2, 'cancelled')],
      [],
    ],
    ['one of two needs failed', [2], [need(2, 0, 'running'), need(2, 1, 'lost')], []],
  ])('%s', (_name, tasks, needs, able) => {
    expect([...ableToGoOn(new Set(tasks), needs)].sort()).toEqual(able);
  });
});
