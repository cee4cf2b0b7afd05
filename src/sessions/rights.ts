/** What a person may do; each is asked for by itself. */
export const RIGHTS = ['talk', 'run', 'approve', 'administer'] as const;
export type Right = (typeof RIGHTS)[number];

export const ROLES = ['viewer', 'operator', 'approver', 'admin'] as const;
export type Role = (typeof ROLES)[number];

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

export function isRole(text: string): text is Role {
  return (ROLES as readonly string[]).includes(text);
}
