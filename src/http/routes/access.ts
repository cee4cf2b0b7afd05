import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { AppError } from '../../errors.ts';
import { approveAndTell } from '../../notifications/pairing.ts';
import {
  allowGroup,
  denyGroup,
  getPersonById,
  listAccess,
  type Person,
  revoke,
  setGroupPolicy,
  setRole,
} from '../../sessions/access.ts';
import { DEFAULT_ROLE, GROUP_POLICIES, ROLES, type Role } from '../../sessions/rights.ts';
import type { Reader, Tx } from '../../store/tx.ts';
import type { Rooms } from '../rooms.ts';
import {
  ACTOR,
  epochMs,
  idOf,
  idParams,
  notFound,
  publicId,
  refusals,
  refusalsOfChange,
  refusalsWithId,
} from './shapes.ts';

const channel = z.enum(['telegram', 'wecom', 'webchat']);

const personSchema = z.object({
  id: publicId,
  channel,
  account: z.string(),
  userId: z.string(),
  name: z.string().nullable(),
  role: z.enum(ROLES),
  pairedAt: epochMs,
  pairedBy: z.string(),
  revokedAt: epochMs.nullable(),
});

const accessSchema = z.object({
  people: z.array(personSchema),
  pending: z.array(
    z.object({
      id: publicId,
      channel,
      account: z.string(),
      userId: z.string(),
      name: z.string().nullable(),
      requestedAt: epochMs,
      expiresAt: epochMs,
    }),
  ),
  groups: z.array(
    z.object({
      channel: z.string(),
      account: z.string(),
      chat: z.string(),
      policy: z.enum(GROUP_POLICIES),
      allowedAt: epochMs,
      allowedBy: z.string(),
    }),
  ),
});

const approval = z.strictObject({ code: z.string().min(1).max(64), role: z.enum(ROLES).optional() });
const roleChange = z.strictObject({ role: z.enum(ROLES) });
const groupChange = z
  .strictObject({
    channel,
    account: z.string().min(1).max(64).default('default'),
    chat: z.string().min(1).max(256),
    allow: z.boolean().default(true),
    policy: z
      .enum(GROUP_POLICIES)
      .optional()
      .describe(
        'what is acted on: what is addressed to the bot, commands alone, or nothing; absent: as it was, else `mention`',
      ),
  })
  .refine(({ allow, policy }) => allow || policy === undefined, {
    message: 'a group that is closed has no policy',
    path: ['policy'],
  });

/** Who may do what: pairing, roles, groups. */
export const accessRoutes =
  (rooms: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const { store, clock } = rooms;
    app.get('/api/access', {
      schema: {
        tags: ['access'],
        summary: 'People, who waits to be let in, and groups',
        response: { 200: accessSchema, ...refusals },
      },
      handler: async () => {
        const { people, pending, groups } = await listAccess(store, clock.now());
        const withId = <T extends { id: number }>(item: T) => ({ ...item, id: store.ids.encode(item.id) });
        return { people: people.map(withId), pending: pending.map(withId), groups: [...groups] };
      },
    });
    await app.register(changingRoutes(rooms));
  };

const changingRoutes =
  ({ store, outbox, settings }: Rooms): FastifyPluginAsyncZod =>
  async (app) => {
    const tags = ['access'];
    const shown = (person: Person) => ({ ...person, id: store.ids.encode(person.id) });
    app.post('/api/access/pairings/approve', {
      schema: {
        tags,
        summary: 'Let the person with this code in; the first one becomes admin unless a role is given',
        body: approval,
        response: { 200: personSchema, ...refusalsWithId },
      },
      handler: async ({ body: { code, role } }) => {
        const answer = await store.transact('http.approve', async (tx) => {
          const chosen = role ?? (await defaultRole(tx));
          return approveAndTell(tx, { outbox, lang: settings.lang }, { code, by: ACTOR, role: chosen });
        });
        if (answer.outcome === 'approved') return shown(answer.person);
        if (answer.outcome === 'unknown_code')
          throw new AppError('not_found', 'nobody waits with this code: it is mistyped, used or too old', {
            field: 'code',
          });
        throw new AppError(
          'rate_limited',
          `too many wrong codes; try again in ${Math.ceil(answer.retryAfterMs / 60_000)} minutes`,
        );
      },
    });
    app.post('/api/access/people/:id/revoke', {
      schema: {
        tags,
        summary: 'Take all rights away',
        params: idParams,
        response: { 200: personSchema, ...refusalsOfChange },
      },
      handler: async ({ params }) => {
        const id = idOf(store.ids, params.id, 'person');
        const outcome = await store.transact('http.revoke', async (tx) =>
          revoke(tx, await personOf(tx, id, params.id), ACTOR),
        );
        if (outcome === 'already_revoked') throw new AppError('conflict', `person ${params.id} has no rights already`);
        return shown(await personOf(store, id, params.id));
      },
    });
    app.post('/api/access/people/:id/role', {
      schema: {
        tags,
        summary: 'Give a role; a revoked person is let in again',
        params: idParams,
        body: roleChange,
        response: { 200: personSchema, ...refusalsWithId },
      },
      handler: async ({ params, body }) => {
        const id = idOf(store.ids, params.id, 'person');
        const person = await store.transact('http.role', async (tx) =>
          setRole(tx, await personOf(tx, id, params.id), body.role, ACTOR),
        );
        return shown(person!);
      },
    });
    app.post('/api/access/groups', {
      schema: {
        tags,
        summary: 'Allow a group and say what is acted on in it, or close it again',
        body: groupChange,
        response: { 200: z.object({ changed: z.boolean() }), ...refusals },
      },
      handler: async ({ body: { allow, policy, ...group } }) => ({
        changed: await store.transact('http.group', (tx) => {
          if (!allow) return denyGroup(tx, group, ACTOR);
          return policy === undefined ? allowGroup(tx, group, ACTOR) : setGroupPolicy(tx, group, policy, ACTOR);
        }),
      }),
    });
  };

/** People of the web chat come in by the administrator's own links; they do not count as the first one. */
async function defaultRole(tx: Tx): Promise<Role> {
  const { people } = await listAccess(tx, tx.now);
  return people.some((person) => person.channel !== 'webchat') ? DEFAULT_ROLE : 'admin';
}

async function personOf(reader: Reader, id: number, text: string): Promise<Person> {
  const person = await getPersonById(reader, id);
  if (!person) throw notFound('person', text);
  return person;
}
