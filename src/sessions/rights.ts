/** What a person may do; each is asked for by itself. */
export const RIGHTS = ['talk', 'run', 'approve', 'administer'] as const;
export type Right = (typeof RIGHTS)[number];

/** The stored words, each with more rights than the one before. A person who is let in is an operator unless told otherwise. */
export const ROLES = ['viewer', 'operator', 'approver', 'admin'] as const;
export type Role = (typeof ROLES)[number];
export const DEFAULT_ROLE: Role = 'operator';

/** What groups can be told to act on; `off`: on nothing. A group that is not allowed has none of them. */
export const GROUP_POLICIES = ['mention', 'commands', 'off'] as const;
export type GroupPolicy = (typeof GROUP_POLICIES)[number];

/** The one table of who may what; docs/access.md shows it and a test compares the two. */
const RIGHTS_OF: Readonly<Record<Role, ReadonlySet<Right>>> = {
  viewer: new Set(['talk']),
  operator: new Set(['talk', 'run']),
  approver: new Set(['talk', 'run', 'approve']),
  admin: new Set(RIGHTS),
};

/** Without a role there is no right: the default is none. */
export function may(role: Role | null, right: Right): boolean {
  return role !== null && RIGHTS_OF[role].has(right);
}

/** To whom something belongs that a person wants to see or to act on. */
export interface Belonging {
  /** It is of the conversation in which the person speaks, or presses. */
  readonly sameConversation: boolean;
  /** Whose it is, where that is known: in a group one conversation has many people. */
  readonly ownerId?: string | undefined;
}

/**
 * Whether a person may do this with that thing, by a command or by a button: what is of another conversation is an administrator's;
 * changing the course of what somebody else of the group has asked for, too. Seeing and approving ask for no owner.
 */
export function mayWith(role: Role | null, userId: string, right: Right, thing: Belonging): boolean {
  if (!may(role, right)) return false;
  if (may(role, 'administer')) return true;
  if (!thing.sameConversation) return false;
  return right !== 'run' || thing.ownerId === undefined || thing.ownerId === userId;
}

export function isRole(text: string): text is Role {
  return (ROLES as readonly string[]).includes(text);
}

export function isGroupPolicy(text: string): text is GroupPolicy {
  return (GROUP_POLICIES as readonly string[]).includes(text);
}
