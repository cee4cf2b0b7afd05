import { z } from 'zod';
import { byteCount, durationMs } from '../config/values.ts';
import { ROLES } from '../sessions/rights.ts';
import { ERROR_CLASSES, ON_LOST } from '../tasks/run-words.ts';
import { NOTIFY_POLICIES, PRIORITIES } from '../tasks/states.ts';
import { DEFAULT_RETRY } from '../tasks/task.ts';
import { ARG_TYPES, HTTP_METHODS } from './template-model.ts';

/**
 * The shape of a template file (docs/templates.md). Fields of later versions are known and refused, never ignored in silence. What
 * needs more than one field is checked in template-checks.ts. Messages are written to follow the field's path.
 */
const DURATION = 'must be a duration such as 30s, 10m or 1d';
const BYTES = 'must be a size such as 64KiB or 1MiB';
const NOT_YET = 'is not available yet';

const notYet = () => z.undefined(NOT_YET).optional();
const line = (max: number) =>
  z
    .string()
    .max(max)
    .refine((text) => text.trim() !== '', 'must not be empty');

/** One of `now`; other values that a later version will know get their own sentence. */
function available<const T extends string>(now: readonly T[], later: readonly string[]) {
  return z.unknown().transform((value, context): T => {
    if (now.includes(value as T)) return value as T;
    const isPlanned = typeof value === 'string' && later.includes(value);
    const message = isPlanned
      ? `${value.slice(0, 32)} ${NOT_YET}; there is ${now.join(', ')}`
      : `must be ${now.join(' or ')}`;
    context.addIssue({ code: 'custom', message });
    return now[0]!;
  });
}

function measured(parse: (text: string) => number | undefined, what: string, min: string, max: string) {
  return z.string(what).transform((text, context) => {
    const value = parse(text);
    const isWithin = value !== undefined && value >= parse(min)! && value <= parse(max)!;
    if (!isWithin)
      context.addIssue({ code: 'custom', message: value === undefined ? what : `must be between ${min} and ${max}` });
    return value ?? 0;
  });
}
const duration = (min: string, max: string) => measured(durationMs, DURATION, min, max);

const titleSchema = z.preprocess(
  (value) => (typeof value === 'string' ? { en: value } : value),
  z.strictObject(
    { en: line(100).optional(), zh: line(100).optional() },
    {
      error: (issue) => (issue.code === 'invalid_type' ? 'must be text or { en: …, zh: … }' : undefined),
    },
  ),
);

const bound = z.union([z.number(), z.string()], 'must be a number, or for dates a day').optional();

export const argSchema = z.strictObject({
  type: z.enum(ARG_TYPES).prefault('string'),
  required: z.boolean().prefault(false),
  default: z.union([z.string(), z.number(), z.boolean()], 'must be text, a number, true or false').optional(),
  pattern: line(200).optional(),
  min: bound,
  max: bound,
  values: z.array(line(100)).min(1).max(100).optional(),
  allowDash: z.boolean().prefault(false),
});

const classes = () => z.record(z.string(), z.enum(ERROR_CLASSES)).prefault({});

const retrySchema = z.strictObject({
  max: z.int().min(1).max(100).prefault(DEFAULT_RETRY.max),
  base: duration('0s', '1d').prefault(`${DEFAULT_RETRY.baseMs}ms`),
  factor: z.number().min(1).max(100).prefault(DEFAULT_RETRY.factor),
  cap: duration('0s', '7d').prefault(`${DEFAULT_RETRY.capMs}ms`),
  jitter: z.number().min(0).max(1).prefault(DEFAULT_RETRY.jitter),
  on: z.strictObject({ exit: classes(), http: classes(), error: classes() }).prefault({}),
});

const breakerSchema = z.strictObject({
  name: name('a name'),
  threshold: z.number().min(0.01).max(1).prefault(0.5),
  window: duration('1s', '1d').prefault('1m'),
  minimum: z.int().min(1).max(10_000).prefault(5),
  cooldown: duration('1s', '1d').prefault('30s'),
  onOpen: z.enum(['wait', 'fail']).prefault('wait'),
});

/** What a header may be called; those that the transport sets itself are refused in template-request.ts. */
const HEADER = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$/;
const STATUS = /^([1-5]\d\d|[1-5]xx)$/;

export const requestSchema = z.strictObject({
  method: z.enum(HTTP_METHODS).prefault('GET'),
  url: line(2_000),
  headers: z
    .record(z.string().regex(HEADER, 'must be the name of a header'), z.union([line(4_096)], 'must be text'))
    .prefault({}),
  body: z
    .union(
      [z.string().max(65_536), z.record(z.string(), z.json()), z.array(z.json())],
      'must be text, a mapping or a list',
    )
    .optional(),
  expect: z
    .array(
      z
        .union([z.string(), z.number()])
        .transform(String)
        .refine((status) => STATUS.test(status), 'must be an HTTP status such as 204, or 2xx'),
    )
    .min(1)
    .max(20)
    .prefault(['2xx']),
  maxResponse: measured(byteCount, BYTES, '1KiB', '1MiB').prefault('64KiB'),
});

export const templateSchema = z.strictObject({
  id: z.string().regex(/^[a-z0-9-]{1,48}$/, 'must be 1 to 48 lower-case letters, digits and dashes'),
  title: titleSchema.optional(),
  triggers: z.array(line(200)).max(20).prefault([]),
  args: z.record(z.string(), argSchema).prefault({}),
  runtime: available(['shell', 'http'], ['acp']).prefault('shell'),
  shell: z.literal(false, NOT_YET).optional(),
  command: z.array(z.string().max(16_384)).min(1).max(128).optional(),
  request: requestSchema.optional(),
  env: z.record(z.string(), z.string().max(4_096)).prefault({}),
  secrets: z
    .array(z.string().regex(/^[A-Z_][A-Z0-9_]{0,63}$/, 'must be capital letters, digits and underscores'))
    .max(32)
    .prefault([]),
  pool: name('a pool').optional(),
  agent: name('an agent id').optional(),
  labels: z
    .record(z.string(), z.string().regex(/^[\p{L}\p{N}._-]{1,64}$/u, 'must be 1 to 64 letters, digits, dots or dashes'))
    .optional(),
  turn: available(['background'], ['foreground']).prefault('background'),
  priority: z.enum(PRIORITIES).prefault('normal'),
  lane: name('a lane').optional(),
  timeout: duration('1s', '7d').prefault('10m'),
  grace: duration('0s', '10m').prefault('10s'),
  quietAfter: z
    .union([z.literal('off'), duration('10s', '7d')], 'must be a duration between 10s and 7d, or off')
    .prefault('10m'),
  limits: z
    .strictObject({
      memory: measured(byteCount, BYTES, '1MiB', '1024GiB').optional(),
      cpu: z.number().min(0.01).max(1_024).optional(),
      cpuTime: duration('1s', '30d').optional(),
      output: measured(byteCount, BYTES, '1KiB', '64MiB').prefault('1MiB'),
    })
    .prefault({}),
  ttl: duration('1s', '365d').optional(),
  rate: z.strictObject({ per: duration('1s', '1d'), max: z.int().min(1).max(100_000) }).optional(),
  concurrency: z.int().min(1).max(10_000).optional(),
  serialKey: line(200).optional(),
  onLost: z.enum(ON_LOST).prefault('retry'),
  retry: retrySchema.prefault({}),
  breaker: breakerSchema.optional(),
  idempotencyKey: line(500).optional(),
  approval: notYet(),
  notify: z.enum(NOTIFY_POLICIES).optional(),
  summary: z.enum(['plain', 'markdown']).prefault('plain'),
  roles: z.array(z.enum(ROLES)).min(1).optional(),
  hook: notYet(),
});
export type TemplateContent = z.output<typeof templateSchema>;

function name(what: string) {
  return z
    .string()
    .regex(
      /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/,
      `must be ${what}: 1 to 64 letters, digits, dots, dashes or underscores`,
    );
}
