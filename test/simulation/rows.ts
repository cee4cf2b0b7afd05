import Database, { type Database as Connection, type Statement } from 'better-sqlite3';
import type { OutboxTable } from '../../src/store/outbox-tables.ts';
import type { EffectTable, FlowTable, RunTable, TaskTable } from '../../src/store/tables.ts';

/** What is on disk at one moment. */
export interface Rows {
  /** With the queue of its stream and its checkpoint. */
  readonly tasks: ReadonlyMap<number, TaskTable & { queue: string; checkpoint: string | null }>;
  readonly runs: ReadonlyMap<number, RunTable>;
  readonly flows: ReadonlyMap<number, FlowTable>;
  readonly outbox: ReadonlyMap<number, OutboxTable>;
  readonly effects: ReadonlyMap<number, EffectTable>;
}

/** What one task needs of another, and how that one stands. */
export interface NeedRow {
  task_id: number;
  on_task_id: number;
  condition: string;
  met: number;
}

export interface BreakerRow {
  state: string;
  opened_at: number | null;
  until_at: number | null;
}

/** What a person has paused. */
export interface PausedGate {
  kind: string;
  name: string;
  paused_at: number;
}

export const NO_ROWS: Rows = {
  tasks: new Map(),
  runs: new Map(),
  flows: new Map(),
  outbox: new Map(),
  effects: new Map(),
};

const TABLES = {
  tasks: 'task',
  runs: 'run',
  flows: 'flow',
  outbox: 'outbox',
  effects: 'effect',
} as const satisfies Record<keyof Rows, string>;

interface Change {
  n: number;
  name: keyof Rows;
  id: number;
}

/**
 * Reads the file from beside, whichever process has it open. Triggers keep a list of the rows that were touched, so that a look costs
 * what has changed and not what there is; a row that is written without a change is a new object of the same content.
 */
export class RowReader {
  readonly #connection: Connection;
  readonly #changes: Statement;
  readonly #one: Record<keyof Rows, Statement>;
  readonly #serverEvent: Statement;
  readonly #instance: Statement;
  readonly #deadLetter: Statement;
  readonly #serial: Statement;
  readonly #needs: Statement;
  readonly #breaker: Statement;
  readonly #paused: Statement;
  #rows: Rows = NO_ROWS;
  #seen = 0;

  constructor(path: string) {
    this.#connection = new Database(path);
    for (const sql of listSql()) this.#connection.exec(sql);
    this.#changes = this.#connection.prepare('select n, name, id from simulation_change where n > ? order by n');
    const one = (table: string) => this.#connection.prepare(`select * from ${table} where id = ?`);
    const task = this.#connection.prepare(
      `select task.*, (select queue from stream where stream.id = task.stream_id) as queue,
        (select data from checkpoint where checkpoint.task_id = task.id) as checkpoint from task where id = ?`,
    );
    this.#one = { tasks: task, runs: one('run'), flows: one('flow'), outbox: one('outbox'), effects: one('effect') };
    this.#needs = this.#connection.prepare('select * from need where task_id = ? or on_task_id = ?');
    this.#serverEvent = this.#connection.prepare(
      'select type from event where task_id = ? and run_id = ? and seq = -2',
    );
    this.#instance = this.#connection.prepare('select instance_id from agent where agent_id = ?');
    this.#deadLetter = this.#connection.prepare('select state, generation from dead_letter where task_id = ?');
    this.#serial = this.#connection.prepare('select serial from stream where id = ?');
    this.#paused = this.#connection.prepare(
      'select kind, name, paused_at from gate where paused_at is not null order by kind, name',
    );
    this.#breaker = this.#connection.prepare('select state, opened_at, until_at from breaker where name = ?');
  }

  /** The same object as before while nothing was committed. */
  read(): Rows {
    const changes = this.#changes.all(this.#seen) as Change[];
    if (changes.length === 0) return this.#rows;
    this.#seen = changes.at(-1)!.n;
    const read = new Set<string>();
    const rows: { [T in keyof Rows]: Rows[T] } = { ...this.#rows };
    for (const { name, id } of changes) {
      if (read.size === read.add(`${name} ${id}`).size) continue;
      if (rows[name] === this.#rows[name]) Object.assign(rows, { [name]: new Map<number, unknown>(rows[name]) });
      const table = rows[name] as Map<number, unknown>;
      const row = this.#one[name].get(id);
      if (row === undefined) table.delete(id);
      else table.set(id, row);
    }
    this.#rows = rows;
    return rows;
  }

  /** How the server itself ended this run; undefined where its agent did, or nobody. */
  endedByServer(run: RunTable): string | undefined {
    return (this.#serverEvent.get(run.task_id, run.id) as { type: string } | undefined)?.type;
  }

  /** The instance that speaks for this agent. */
  validInstance(agentId: string): string | undefined {
    return (this.#instance.get(agentId) as { instance_id: string } | undefined)?.instance_id;
  }

  deadLetter(taskId: number): { state: string; generation: number } | undefined {
    return this.#deadLetter.get(taskId) as { state: string; generation: number } | undefined;
  }

  /** What this task needs and what needs it. */
  needsAround(taskId: number): readonly NeedRow[] {
    return this.#needs.all(taskId, taskId) as NeedRow[];
  }

  /** The key under which it runs alone; empty without one. */
  serialOf({ stream_id }: TaskTable): string {
    return (this.#serial.get(stream_id) as { serial: string }).serial;
  }

  breaker(name: string): BreakerRow | undefined {
    return this.#breaker.get(name) as BreakerRow | undefined;
  }

  paused(): readonly PausedGate[] {
    return this.#paused.all() as PausedGate[];
  }

  close(): void {
    this.#connection.close();
  }
}

/** The columns that differ, in words, such as `task 7 status: queued → leased`; none where all is as it was. */
export function differences(before: Rows, now: Rows): string[] {
  return (Object.keys(TABLES) as (keyof Rows)[]).flatMap((name) =>
    [...now[name].values()].flatMap((row) => {
      const old: object = before[name].get(row.id) ?? {};
      const changed = Object.entries(row).filter(([column, value]) => value !== old[column as keyof typeof old]);
      return changed.map(
        ([column, value]) => `${TABLES[name]} ${row.id} ${column}: ${old[column as keyof typeof old]} → ${value}`,
      );
    }),
  );
}

function listSql(): string[] {
  const triggers = Object.entries(TABLES).flatMap(([name, table]) =>
    ['insert', 'update', 'delete'].map(
      (event) => `create trigger simulation_${table}_${event} after ${event} on ${table} begin
        insert into simulation_change (name, id) values ('${name}', ${event === 'delete' ? 'old' : 'new'}.id);
      end`,
    ),
  );
  return [
    'create table simulation_change (n integer primary key, name text not null, id integer not null)',
    ...triggers,
  ];
}
