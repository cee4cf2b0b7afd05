import { AgentAlerts } from '../health/agent-alerts.ts';
import { QuietRuns } from '../health/quiet-runs.ts';
import type { Base } from './base.ts';

/** A run whose template is gone may say nothing for so long, milliseconds. */
const QUIET_AFTER_MS = 600_000;

/** Runs that have said nothing for longer than their templates allow. */
export function quietRuns({ store, clock, log, templates }: Base): QuietRuns {
  const quietAfterMs = (id: string) => {
    const template = templates.get(id);
    return template ? template.quietAfterMs : QUIET_AFTER_MS;
  };
  return new QuietRuns({ store, clock, log, quietAfterMs });
}

/** Tells the conversations of ERRAND_ALERT_SESSIONS which agents are away. */
export function agentAlerts(base: Base): AgentAlerts {
  const { alertSessions, lang } = base.settings;
  return new AgentAlerts({ ...base, sessionKeys: alertSessions, lang });
}
