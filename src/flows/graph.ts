import { AppError } from '../errors.ts';
import type { IdCodec } from '../ids.ts';
import { findFault, type NeedCondition } from '../tasks/needs-graph.ts';
import type { FlowSeed } from './start.ts';

/** What a submission says about other tasks. */
export interface Links {
  /** Indexes of the same batch, and public ids of tasks of the same flow. */
  readonly needs?: readonly (number | string)[] | undefined;
  readonly when?: NeedCondition | undefined;
  readonly flowId?: string | undefined;
}

/** A need of a task that is being made. */
export type Need = { readonly index: number } | { readonly id: number };

/** A task of a graph, or for a flow that exists. */
export interface LinkedSeed extends FlowSeed {
  /** A flow's id; `new`: the one that this batch makes for all of these; `own`: as if it were submitted alone. */
  readonly flow: number | 'new' | 'own';
  readonly needs: readonly Need[];
  readonly condition: NeedCondition;
  /** Where it stands in the request, for errors: empty, `[3].` or `tasks[3].`. */
  readonly place: string;
}

/** Whether a submission must be looked at together with other tasks. */
export function isLinked({ needs, flowId }: Links): boolean {
  return flowId !== undefined || (needs !== undefined && needs.length > 0);
}

/** Whether the tasks of a batch name one another, so that they are one graph. */
export function isGraph(batch: readonly Links[]): boolean {
  return batch.some(({ needs }) => needs?.some((on) => typeof on === 'number'));
}

/**
 * The needs of a batch, checked as far as they can be without the database.
 * @param whole all tasks without a flow of their own become one flow
 * @throws AppError invalid_request that names the place: a circle with its path, an index without a task, a need named twice
 */
export function linkSeeds(
  seeds: readonly FlowSeed[],
  links: readonly Links[],
  options: { whole: boolean; placeOf(index: number): string; ids: Pick<IdCodec, 'decode'> },
): LinkedSeed[] {
  const { whole, placeOf, ids } = options;
  const fault = findFault(links.map(({ needs = [] }) => needs));
  if (fault) throw needError(placeOf(fault.task), fault.task, fault.need, fault.text);
  const linked = seeds.map((seed, index): LinkedSeed => {
    const { needs = [], when = 'success', flowId } = links[index]!;
    const place = placeOf(index);
    const flow = flowId === undefined ? (whole ? 'new' : 'own') : decodeFlow(ids, flowId, place);
    const read = needs.map((on, need) => {
      if (typeof on === 'number') return { index: on };
      const id = ids.decode(on);
      if (id === undefined) throw needError(place, index, need, `there is no task ${JSON.stringify(on)}`);
      if (typeof flow !== 'number')
        throw needError(place, index, need, 'a task that exists can be needed by one of its flow alone: give flowId');
      return { id };
    });
    return { ...seed, flow, needs: read, condition: when, place };
  });
  refuseStrangers(linked);
  return linked;
}

/** A need that cannot be: the message names the place as people count it, the field as the request does. */
export function needError(
  place: string,
  task: number,
  need: number,
  text: string,
  code: 'invalid_request' | 'conflict' = 'invalid_request',
): AppError {
  const shown = place === '' ? `needs[${need}]` : `tasks[${task}].needs[${need}]`;
  return new AppError(code, `${shown}: ${text}`, { field: `${place}needs[${need}]` });
}

function decodeFlow(ids: Pick<IdCodec, 'decode'>, text: string, place: string): number {
  const id = ids.decode(text);
  if (id === undefined)
    throw new AppError('invalid_request', `there is no flow ${JSON.stringify(text)}`, { field: `${place}flowId` });
  return id;
}

/** A flow has one owner, and its tasks need one another only. */
function refuseStrangers(linked: readonly LinkedSeed[]): void {
  const first = linked.find(({ flow }) => flow === 'new');
  for (const [task, { flow, needs, place, task: own }] of linked.entries()) {
    if (flow === 'new' && own.sessionKey !== first!.task.sessionKey)
      throw new AppError('invalid_request', 'the tasks of a graph belong to one conversation', {
        field: `${place}sessionKey`,
      });
    for (const [need, on] of needs.entries())
      if ('index' in on && linked[on.index]!.flow !== flow)
        throw needError(place, task, need, `task ${on.index} is of another flow`);
  }
}
