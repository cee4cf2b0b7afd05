import type { Migration } from '../migrate.ts';

/** Agents that a person has told to take nothing new. Apart from the agents' own rows: those are written anew by every registration. */
export const agentDrainsSchema: Migration = {
  version: 9,
  name: 'agent_drains',
  statements: [
    `create table agent_drain (
      agent_id text primary key,
      at integer not null,
      by text not null,
      why text
    ) without rowid`,
  ],
};
