import type { BreakerPlan, BreakerPolicies, BreakerPolicy } from '../tasks/breakers.ts';
import type { Template } from './template-model.ts';

/** The breakers of the loaded templates, always those of the last reload. */
export function breakerPolicies(templates: { list(): readonly Template[] }): BreakerPolicies {
  let seen: readonly Template[] | undefined;
  let index = indexOf([]);
  const current = () => {
    const list = templates.list();
    // The registry publishes a new list with every reload.
    if (list !== seen) {
      seen = list;
      index = indexOf(list);
    }
    return index;
  };
  return {
    of: (template) => current().byTemplate.get(template),
    named: (name) => current().byName.get(name),
    all: () => current().plans,
  };
}

/** Templates whose breaker has other settings than those that count. @param list sorted by id */
export function breakerConflicts(list: readonly Template[]): { id: string; message: string }[] {
  const { byName, byTemplate } = indexOf(list);
  return list.flatMap(({ id, breaker }) => {
    const counts = byTemplate.get(id);
    if (breaker === null || !counts) return [];
    const isSame = SHARED.every((field) => breaker[field] === counts[field]);
    const owner = byName.get(breaker.name)!.templates[0]!.id;
    return isSame ? [] : [{ id, message: `has other settings for ${breaker.name} than ${owner}, which count` }];
  });
}

const SHARED = ['threshold', 'windowMs', 'minimum', 'cooldownMs'] as const;

interface Index {
  byTemplate: Map<string, BreakerPolicy>;
  byName: Map<string, BreakerPlan>;
  plans: readonly BreakerPlan[];
}

/** Templates that share a name share its settings, those of the first of them; what becomes of waiting tasks is each one's own. */
function indexOf(list: readonly Template[]): Index {
  const withBreaker = list.flatMap(({ id, breaker }) => (breaker === null ? [] : [{ id, breaker }]));
  const byName = new Map<string, BreakerPlan>();
  const byTemplate = new Map<string, BreakerPolicy>();
  for (const { id, breaker } of withBreaker) {
    const { onOpen, ...own } = breaker;
    const plan = byName.get(own.name) ?? { settings: own, templates: [] };
    byName.set(own.name, { ...plan, templates: [...plan.templates, { id, onOpen }] });
    byTemplate.set(id, { ...plan.settings, onOpen });
  }
  const plans = [...byName.values()].sort((a, b) => (a.settings.name < b.settings.name ? -1 : 1));
  return { byTemplate, byName, plans };
}
