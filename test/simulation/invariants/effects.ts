import { policyOf } from '../actions/effects.ts';
import { firstBreach, type Invariant } from './invariant.ts';

/** What must not be done twice. What a person says about an effect may be wrong: after it, one more time is that person's. */
export const EFFECT_LAWS: readonly Invariant[] = [
  {
    name: 'an effect whose policy is not retry is done once, whatever crashes between act and mark',
    breach: ({ world: { memory } }) =>
      firstBreach(memory.told, ([key, runs]) => {
        if (policyOf(key) === 'retry') return undefined;
        const acts = [...runs.values()].filter((state) => state === 'acted' || state === 'marked').length;
        return acts <= 1 + (memory.again.get(key) ?? 0) ? undefined : `${key} was done ${acts} times`;
      }),
  },
  {
    name: 'of living runs one at a time is told to go',
    breach: ({ now, world: { memory } }) =>
      firstBreach(memory.told, ([key, runs]) => {
        if (memory.again.has(key)) return undefined;
        const live = [...runs].filter(([id, state]) => state !== 'given back' && now.runs.get(id)?.ended_at === null);
        return live.length <= 1 ? undefined : `runs ${live.map(([id]) => id)} were all told to go with ${key}`;
      }),
  },
  {
    name: 'an effect succeeds once: what is settled stays so until a person decides otherwise',
    breach: ({ before, now, world: { memory } }) => {
      if (before.effects === now.effects) return undefined;
      return firstBreach(now.effects.values(), (effect) => {
        const old = before.effects.get(effect.id);
        if (!old || old.state === 'init' || memory.again.has(effect.key)) return undefined;
        const same = old.state === effect.state && old.run_id === effect.run_id && old.result === effect.result;
        return same ? undefined : `${effect.key} was ${old.state} by run ${old.run_id} and is ${effect.state}`;
      });
    },
  },
  {
    name: 'what was answered to be done is kept as done',
    breach: ({ now, world: { memory } }) =>
      firstBreach(memory.done, ([key, runId]) => {
        if (memory.again.has(key)) return undefined;
        const effect = [...now.effects.values()].find((known) => known.key === key);
        return effect?.state === 'success' ? undefined : `${key} was done by run ${runId} and is ${effect?.state}`;
      }),
  },
  {
    name: 'one key has one effect',
    breach: ({ before, now }) =>
      before.effects === now.effects ||
      new Set([...now.effects.values()].map(({ key }) => key)).size === now.effects.size
        ? undefined
        : 'a key has two effects',
  },
];
