import type { Clock } from '../clock.ts';
import type { GatewaySettings } from '../config/gateway.ts';
import type { TemplateRegistry } from '../flows/templates.ts';
import type { Log } from '../log.ts';
import type { Outbox } from '../outbox/enqueue.ts';
import type { OutboxEvent } from '../outbox/message.ts';
import type { EventQueue } from '../store/events.ts';
import type { Store } from '../store/store.ts';
import type { Emit, TaskEvent } from '../tasks/task.ts';

/** What every part of the composition is made from. */
export interface Base {
  readonly settings: GatewaySettings;
  readonly store: Store;
  readonly log: Log;
  readonly clock: Clock;
  readonly templates: TemplateRegistry;
  readonly outbox: Outbox;
  readonly emit: Emit<TaskEvent>;
  /** Drained before every commit, in this order. */
  readonly taskEvents: EventQueue<TaskEvent>;
  readonly outboxEvents: EventQueue<OutboxEvent>;
}
