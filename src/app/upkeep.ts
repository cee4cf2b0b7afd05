import { join } from 'node:path';
import type { Rooms } from '../http/rooms.ts';
import { createArchive } from '../retention/archive.ts';
import { TaskAudit, type TaskAuditOptions } from '../retention/audit.ts';
import { Retention } from '../retention/retention.ts';
import type { Base } from './base.ts';
import { SAFE_REPEAT } from './channels.ts';

/** What keeps the store small and the engine honest: the retention service, and the audit that a person asks for. */
export function upkeepRooms(
  base: Base,
  rooms: Pick<Rooms, 'registry' | 'dispatch' | 'line' | 'channels'>,
  calls: Pick<TaskAuditOptions, 'sweep' | 'wakeDelivery'>,
): { retention: Retention; taskAudit: TaskAudit } {
  const { stateDir, retentionMs, leaseMs } = base.settings;
  const archive = createArchive({ folder: join(stateDir, 'archive'), clock: base.clock });
  return {
    retention: new Retention({ ...base, archive, retentionMs }),
    taskAudit: new TaskAudit({
      ...base,
      registry: rooms.registry,
      dispatch: rooms.dispatch,
      line: rooms.line,
      channels: new Set(rooms.channels.keys()),
      safeRepeat: SAFE_REPEAT,
      leaseMs,
      retentionMs,
      ...calls,
    }),
  };
}
