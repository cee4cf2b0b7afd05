import type { Tx, Verb } from '../store/tx.ts';
import { extendLeases, runsById } from './run-queries.ts';

export interface RunPulse {
  agentId: string;
  runId: number;
  leaseToken: string;
  leaseMs: number;
}

export type PulseAnswer = 'continue' | 'cancel' | 'lost';

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
      const holds = run && run.agent_id === pulse.agentId && run.lease_token === pulse.leaseToken;
      if (!holds || run.current_run !== run.run_id || run.run_ended_at !== null) return 'lost';
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
