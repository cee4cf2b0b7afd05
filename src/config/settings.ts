import { z } from 'zod';
import { distance, durationMs, type Environment, type SettingProblem, SettingsError } from './values.ts';

/** Variables that a run's program gets (contract, section 3); never taken for settings, though they share the prefix. */
const RUN_VARIABLES = new Set([
  'ERRAND_OUTPUT',
  'ERRAND_PROGRESS',
  'ERRAND_CHECKPOINT_IN',
  'ERRAND_CHECKPOINT_OUT',
  'ERRAND_CHECKPOINT_VERSION',
  'ERRAND_SUMMARY',
  'ERRAND_ARTIFACTS',
  'ERRAND_TASK_ID',
  'ERRAND_RUN_ID',
  'ERRAND_ATTEMPT',
  'ERRAND_IDEMPOTENCY_KEY',
  'ERRAND_ARGS_JSON',
  'ERRAND_RETRY_AFTER',
  'ERRAND_QUESTION',
  'ERRAND_ANSWER',
  'ERRAND_AGENT_SOCKET',
  'ERRAND_RUN_KEY',
]);
const isRunVariable = (name: string) => RUN_VARIABLES.has(name) || name.startsWith('ERRAND_ARG_');

/**
 * Parses the named variables of `env`. Empty values count as absent; surrounding blanks are trimmed.
 * @param shape one zod schema per variable name
 * @param watched prefixes under which an unknown name is a mistake
 * @param known names that are fine but read elsewhere
 * @throws SettingsError naming every problem
 */
export function readSettings<S extends z.ZodRawShape>(
  shape: S,
  env: Environment,
  watched: readonly string[],
  known: readonly (string | RegExp)[] = [],
): z.infer<z.ZodObject<S>> {
  const names = Object.keys(shape);
  const present: Record<string, string> = {};
  for (const name of names) {
    const value = env[name]?.trim();
    if (value) present[name] = value;
  }
  const problems = unknownNames(env, names, watched, known);
  const parsed = z.object(shape).safeParse(present);
  if (!parsed.success) {
    for (const issue of parsed.error.issues) problems.push({ name: issue.path.join('.'), message: issue.message });
  }
  if (problems.length > 0 || !parsed.success) throw new SettingsError(problems);
  return parsed.data;
}

function unknownNames(
  env: Environment,
  names: readonly string[],
  watched: readonly string[],
  known: readonly (string | RegExp)[],
): SettingProblem[] {
  const isKnown = (name: string) =>
    names.includes(name) ||
    isRunVariable(name) ||
    known.some((item) => (typeof item === 'string' ? item === name : item.test(name)));
  return Object.keys(env)
    .filter((name) => watched.some((prefix) => name.startsWith(prefix)) && !isKnown(name))
    .sort()
    .map((name) => ({ name, message: `is not a setting${suggestion(name, names)}` }));
}

function suggestion(name: string, names: readonly string[]): string {
  const best = names
    .map((candidate) => ({ candidate, far: distance(name, candidate) }))
    .sort((a, b) => a.far - b.far)[0];
  return best && best.far <= Math.max(2, name.length / 4) ? `; did you mean ${best.candidate}?` : '';
}

export const setting = {
  text: (max = 4096) => z.string().max(max, `must be at most ${max} characters`),
  url: () =>
    z.string().refine((value) => {
      const url = URL.canParse(value) ? new URL(value) : undefined;
      return url !== undefined && (url.protocol === 'http:' || url.protocol === 'https:');
    }, 'must be an http or https URL'),
  integer: (min: number, max: number) =>
    z
      .string()
      .regex(/^-?\d{1,15}$/, 'must be a whole number')
      .transform(Number)
      .refine((value) => value >= min && value <= max, `must be between ${min} and ${max}`),
  duration: () =>
    z.string().transform((value, context) => {
      const ms = durationMs(value);
      if (ms === undefined) context.addIssue({ code: 'custom', message: 'must be a duration such as 30s, 10m or 1d' });
      return ms ?? 0;
    }),
  list: () =>
    z.string().transform((value) =>
      value
        .split(',')
        .map((item) => item.trim())
        .filter((item) => item !== ''),
    ),
  oneOf: <const T extends readonly [string, ...string[]]>(values: T) =>
    z.enum(values, `must be one of ${values.join(', ')}`),
};
