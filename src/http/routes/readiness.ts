import type { Clock } from '../../clock.ts';
import { messageOf } from '../../errors.ts';
import type { Rooms } from '../rooms.ts';
import { writeProbe } from './queries.ts';

export interface Readiness {
  /** The store takes writes and every channel works. */
  ready: boolean;
  /** There while nothing new starts because a person has said so: requests are still taken, so it is no reason to be away. */
  draining?: { since: number; by: string; why?: string };
  store: { ok: boolean; problem?: string };
  channels: ChannelReadiness[];
}

export interface ChannelReadiness {
  channel: string;
  account: string;
  ok: boolean;
  /** Since the last proof of life, milliseconds; absent where there was none yet. */
  ageMs?: number;
  /** Since the last completed poll, milliseconds; where the channel polls. */
  pollAgeMs?: number;
  problem?: string;
}

/** At most one write per this time, whoever asks how often. Milliseconds. */
const PROBE_EVERY_MS = 1_000;
/** A disk that takes longer is not ready. */
const PROBE_LIMIT_MS = 5_000;

/** Answers whether the gateway can do its work right now; never throws. */
export function readinessOf({
  store,
  clock,
  channels,
  controls,
}: Pick<Rooms, 'store' | 'clock' | 'channels'> & Partial<Pick<Rooms, 'controls'>>): () => Promise<Readiness> {
  let probe: { at: number; result: Promise<Readiness['store']> } | undefined;
  return async () => {
    const now = performance.now();
    if (!probe || now - probe.at >= PROBE_EVERY_MS) probe = { at: now, result: probeStore(store) };
    const stored = await probe.result;
    const found = channelsOf(channels, clock);
    const ready = stored.ok && found.every((channel) => channel.ok);
    const drain = controls?.drain;
    const draining = drain && { since: drain.at, by: drain.by, ...(drain.why === null ? {} : { why: drain.why }) };
    return { ready, ...(draining ? { draining } : {}), store: stored, channels: found };
  };
}

async function probeStore(store: Rooms['store']): Promise<Readiness['store']> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Readiness['store']>((resolve) => {
    timer = setTimeout(
      () => resolve({ ok: false, problem: `a write took more than ${PROBE_LIMIT_MS} ms` }),
      PROBE_LIMIT_MS,
    );
  });
  const written = store.transact('http.readyz', writeProbe).then(
    () => ({ ok: true }),
    (error: unknown) => ({ ok: false, problem: messageOf(error) }),
  );
  const result = await Promise.race([written, late]);
  clearTimeout(timer);
  return result;
}

function channelsOf(channels: Rooms['channels'], clock: Clock): ChannelReadiness[] {
  return [...channels.values()].map((channel) => {
    const { ok, lastOkAt, lastPollAt, problem } = channel.health();
    const age = (at: number) => Math.max(0, clock.now() - at);
    return {
      channel: channel.name,
      account: channel.account,
      ok,
      ...(lastOkAt === undefined ? {} : { ageMs: age(lastOkAt) }),
      ...(lastPollAt === undefined ? {} : { pollAgeMs: age(lastPollAt) }),
      ...(problem === undefined ? {} : { problem }),
    };
  });
}
