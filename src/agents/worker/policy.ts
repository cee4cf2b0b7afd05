import { basename, sep } from 'node:path';
import type { Assignment } from '../protocol.ts';

/** What the agent's owner permits, whatever the gateway asks (contract, section 9). */
export interface Policy {
  /** Template ids or globs, each with or without a pinned digest: `deploy@sha256:…`. */
  allow: readonly string[];
  runtimes: readonly string[];
  /** Absent: any executable. */
  commands?: readonly string[];
  secrets: ReadonlyMap<string, string>;
}

/** Answers why this agent refuses the assignment, or undefined where it may run. */
export function refusalOf(policy: Policy, assignment: Assignment): string | undefined {
  const { template, runtime } = assignment;
  if (!policy.allow.some((entry) => matchesGlob(parseAllow(entry).pattern, template))) {
    return `this agent does not accept the template '${template}' (AGENT_ALLOW)`;
  }
  if (!policy.runtimes.includes(runtime)) return `this agent does not offer the runtime '${runtime}' (AGENT_RUNTIMES)`;
  const missing = (assignment.secrets ?? []).filter((name) => !policy.secrets.has(name));
  if (missing.length > 0) return `this agent has no secret ${missing.join(', ')} (AGENT_SECRETS_FILE)`;
  return runtime === 'shell' && policy.commands ? commandRefusal(policy.commands, assignment.spec) : undefined;
}

/**
 * The digests one of which the template must have; undefined where any content is permitted, which an entry without a pin says. A
 * template that no entry names has none.
 */
export function pinsOf(allow: readonly string[], template: string): string[] | undefined {
  const entries = allow.map(parseAllow).filter(({ pattern }) => matchesGlob(pattern, template));
  return entries.some(({ digest }) => digest === undefined) ? undefined : entries.map(({ digest }) => digest!);
}

function parseAllow(entry: string): { pattern: string; digest?: string } {
  const at = entry.indexOf('@');
  return at < 0 ? { pattern: entry } : { pattern: entry.slice(0, at), digest: entry.slice(at + 1) };
}

/** `*` is any number of characters, `?` is one. */
export function matchesGlob(pattern: string, text: string): boolean {
  if (pattern === '*' || pattern === text) return true;
  const source = [...pattern]
    .map((char) => (char === '*' ? '.*' : char === '?' ? '.' : char.replace(/[^\w]/, '\\$&')))
    .join('');
  return new RegExp(`^${source}$`, 's').test(text);
}

/** Variables with which a caller could make a permitted executable load or become another program. */
const HIJACKING =
  /^(PATH|LD_.*|DYLD_.*|NODE_OPTIONS|NODE_PATH|BASH_ENV|ENV|SHELLOPTS|PS4|IFS|PYTHON(PATH|STARTUP|HOME)|PERL5(OPT|LIB|DB)|RUBY(OPT|LIB)|JAVA_TOOL_OPTIONS|GIT_.*)$/;

/**
 * An entry without a slash permits exactly that bare name, found on the agent's own PATH; an entry with one permits that path. So
 * a file of the same name somewhere else is not permitted.
 */
function commandRefusal(commands: readonly string[], spec: unknown): string | undefined {
  const { argv, env } = (spec ?? {}) as { argv?: unknown; env?: unknown };
  const command = Array.isArray(argv) ? String(argv[0]) : '';
  if (!commands.includes(command)) {
    const shown = command.includes(sep) ? `…/${basename(command)}` : command;
    return `this agent may not start '${shown}' (AGENT_COMMANDS)`;
  }
  const hijack = Object.keys((env ?? {}) as object).find((name) => HIJACKING.test(name));
  return hijack ? `this agent does not let a template set ${hijack} (AGENT_COMMANDS)` : undefined;
}
