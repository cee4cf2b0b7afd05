import { type Command, Option } from 'commander';
import { AppError } from '../errors.ts';
import type { AccessList, Person } from '../sessions/access.ts';
import { GROUP_POLICIES, ROLES, type Role } from '../sessions/rights.ts';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';
import { localTime, printable, table } from './table.ts';

type Shown<T> = Omit<T, 'id'> & { id: string };
interface Answer {
  people: Shown<Person>[];
  pending: Shown<AccessList['pending'][number]>[];
  groups: AccessList['groups'];
}

/** `errand access …` */
export function accessCommands(program: Command, act: Act): void {
  const access = program.command('access').description('who may do what');
  access
    .command('list')
    .description('list people, who waits to be let in, and groups')
    .addHelpText('after', '\nExample:\n  errand access list')
    .action(act(list));
  access
    .command('approve <code>')
    .description('let the person in who was given this code; the first one becomes admin, others operator')
    .addOption(new Option('--role <role>', 'as what').choices(ROLES))
    .addHelpText('after', '\nExample:\n  errand access approve 7KQ2M9XA --role operator')
    .action(act(approve));
  access
    .command('revoke <person>')
    .description('take all rights away')
    .addHelpText('after', '\nExample:\n  errand access revoke m4zt')
    .action(act(revoke));
  access
    .command('role')
    .argument('<person>')
    .argument('<role>', ROLES.join(', '))
    .description('give a role; a revoked person is let in again')
    .addHelpText('after', '\nExample:\n  errand access role m4zt approver')
    .action(act(role));
  access
    .command('group')
    .argument('<place>', 'channel:chat or channel/account:chat')
    .argument('<policy>', [...GROUP_POLICIES, 'close'].join(', '))
    .description(
      'what is acted on in a group: what is addressed to the bot, commands alone, nothing; close: not allowed',
    )
    .addHelpText('after', '\nExample:\n  errand access group telegram:-1001234567890 commands')
    .action(act(group));
}

async function list({ api, show }: Context): Promise<void> {
  const answer = await api().get<Answer>('/api/access');
  show(answer, () => {
    const place = (item: { channel: string; account: string }) =>
      item.account === 'default' ? item.channel : `${item.channel}/${item.account}`;
    const people = answer.people.map((person) => [
      person.id,
      person.revokedAt === null ? person.role : 'revoked',
      place(person),
      person.userId,
      person.name ?? '',
      localTime(person.pairedAt),
      person.pairedBy,
    ]);
    const pending = answer.pending.map((person) => [
      place(person),
      person.userId,
      person.name ?? '',
      localTime(person.expiresAt),
    ]);
    const groups = answer.groups.map((group) => [
      place(group),
      group.chat,
      group.policy,
      localTime(group.allowedAt),
      group.allowedBy,
    ]);
    return [
      table(['PERSON', 'ROLE', 'CHANNEL', 'USER', 'NAME', 'SINCE', 'BY'], people, 'Nobody has access yet.'),
      table(['WAITING ON', 'USER', 'NAME', 'UNTIL'], pending, 'Nobody waits to be let in.'),
      table(['GROUP ON', 'CHAT', 'ACTS ON', 'SINCE', 'BY'], groups, 'No group is allowed.'),
    ].join('\n\n');
  });
}

async function approve({ api, show }: Context, code: string, options: { role?: Role }): Promise<void> {
  const person = await api().post<Shown<Person>>('/api/access/pairings/approve', { code, ...options });
  show(person, () => `${nameOf(person)} is in now, as ${person.role}.`);
}

async function revoke({ api, show }: Context, id: string): Promise<void> {
  const person = await api().post<Shown<Person>>(path`/api/access/people/${id}/revoke`);
  show(person, () => `${nameOf(person)} has no rights any more.`);
}

async function role({ api, show }: Context, id: string, given: string): Promise<void> {
  const person = await api().post<Shown<Person>>(path`/api/access/people/${id}/role`, { role: given });
  show(person, () => `${nameOf(person)} is ${person.role} now.`);
}

/** The place is one word with the channel first: ids of groups begin with a dash, which alone would be an option. */
async function group({ api, show }: Context, place: string, policy: string): Promise<void> {
  const [, channel, account = 'default', chat] = /^([a-z]+)(?:\/([^/:]+))?:(.+)$/.exec(place) ?? [];
  if (channel === undefined || chat === undefined)
    throw new AppError('invalid_request', `${place} is no place: write channel:chat, such as telegram:-1001234567890`, {
      field: 'place',
    });
  const change = policy === 'close' ? { allow: false } : { policy };
  const answer = await api().post<{ changed: boolean }>('/api/access/groups', { channel, account, chat, ...change });
  show(answer, () => (answer.changed ? `${place}: ${policy} now.` : `${place} was so already.`));
}

function nameOf(person: Pick<Person, 'name' | 'userId'>): string {
  return printable(person.name ?? person.userId).replaceAll('\n', ' ');
}
