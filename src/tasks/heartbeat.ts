import type { Tx, Verb } from '../store/tx.ts';
import { extendLeases, runsById } from './run-queries.ts';

export interface RunPulse {
  agentId: string;
  runId: number;
  leaseToken: string;
  leaseMs: number;
}

export type PulseAnswer = 'continue' | 'cancel' | 'lost';

/**
 * Ends that only the agent itself can have reported, while its heartbeat was on the way: nothing to tell. Were it told `lost`, every
 * heartbeat of a busy agent would be answered at once, and the next one sent.
 */
const ENDED_BY_AGENT = new Set(['succeeded', 'failed', 'released', 'blocked', 'needs_input']);

/** Extends the leases of runs that their agent still holds; tells it which to stop. */
export const pulseRuns: Verb<RunPulse, PulseAnswer> = {
  name: 'task.heartbeat',
  rank: 30,
  async run(tx: Tx, pulses) {
    const runs = new Map(
      (await tx.all(runsById, { rows: pulses.map((pulse) => [pulse.runId]) })).map((run) => [run.run_id, run]),
    );
    const answers = pulses.map((pulse): PulseAnswer => {
      const run = runs.get(pulse.runId);
      if (!run || run.agent_id !== pulse.agentId || run.lease_token !== pulse.leaseToken) return 'lost';
      if (run.run_ended_at !== null) return ENDED_BY_AGENT.has(run.run_outcome ?? '') ? 'continue' : 'lost';
      return run.cancel_requested_at === null ? 'continue' : 'cancel';
    });
    const held = pulses.filter((_, index) => answers[index] !== 'lost');
    for (const [leaseMs, group] of groups(held)) {
      await tx.run(extendLeases, { rows: group.map((pulse) => [pulse.runId]), until: tx.now + leaseMs });
    }
    return answers;
  },
};

/** One statement per lease time; all agents have the same in practice. */
function groups(pulses: readonly RunPulse[]): Map<number, RunPulse[]> {
  const byLease = new Map<number, RunPulse[]>();
  for (const pulse of pulses) {
    const group = byLease.get(pulse.leaseMs);
    if (group) group.push(pulse);
    else byLease.set(pulse.leaseMs, [pulse]);
  }
  return byLease;
}
