import type { IdCodec } from '../ids.ts';
import type { Grant } from '../tasks/claim.ts';
import type { ArgValue } from '../tasks/run-words.ts';
import { specFor } from './spec.ts';
import type { TemplateRegistry } from './templates.ts';

/** The template's part of what an agent is asked to run; undefined where the template is gone. */
export function assignmentOf(templates: Pick<TemplateRegistry, 'get'>, ids: IdCodec, { task }: Grant) {
  const template = templates.get(task.template);
  if (!template) return undefined;
  const args = JSON.parse(task.args) as Record<string, ArgValue>;
  return {
    template: template.id,
    runtime: task.runtime,
    spec: specFor(template, args),
    args,
    secrets: [...template.secrets],
    timeoutMs: task.timeout_ms,
    limits: template.runLimits,
    // The same for every attempt, so that a program can hand it to whatever must not happen twice.
    idempotencyKey:
      task.idempotency === null ? `task:${ids.encode(task.id)}` : (JSON.parse(task.idempotency) as string[])[2]!,
  };
}
