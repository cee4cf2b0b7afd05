import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { reportRequestSchema } from '../../src/agents/protocol.ts';
import { submissionSchema } from '../../src/flows/submit.ts';
import { plainSubmission, plainSubmissions, plainSuccesses } from '../../src/http/quick-shapes.ts';

/** Values of every kind, among them those at the edges of what the fields allow. */
const anything = fc.oneof(
  fc.string({ maxLength: 6 }),
  fc.integer(),
  fc.double(),
  fc.boolean(),
  fc.constantFrom<unknown>(null, '', 'silent', 'done_only', 'succeeded', [], {}, [1], { a: 1 }, 2 ** 60, -1, 1.5),
  fc.integer({ min: 0, max: 20_002 }).map((length) => 'x'.repeat(length)),
);

/** A body that is mostly right: each field right, wrong or missing, and sometimes one that nobody knows. */
function mostly(right: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<Record<string, unknown>> {
  const field = (value: fc.Arbitrary<unknown>) =>
    fc.oneof(
      { weight: 12, arbitrary: value },
      { weight: 1, arbitrary: anything },
      { weight: 1, arbitrary: fc.constant(undefined) },
    );
  const known = fc.record(Object.fromEntries(Object.entries(right).map(([key, value]) => [key, field(value)])));
  const stray = fc.oneof(
    { weight: 9, arbitrary: fc.constant({}) },
    { weight: 1, arbitrary: fc.dictionary(fc.string(), anything, { maxKeys: 1 }) },
  );
  // As it comes off the wire: JSON, in which undefined is missing and `__proto__` is a key like others.
  return fc.tuple(known, stray).map(([a, b]) => JSON.parse(JSON.stringify({ ...a, ...b })) as Record<string, unknown>);
}

const args = fc.dictionary(
  fc.oneof(fc.string(), fc.constantFrom('__proto__', 'constructor', 'x'.repeat(65))),
  anything,
  { maxKeys: 4 },
);
const submission = mostly({
  template: fc.constantFrom('hello', 'x'.repeat(48), 'x'.repeat(49)),
  args: fc.oneof(args, fc.dictionary(fc.string(), fc.oneof(fc.string(), fc.integer(), fc.boolean()), { maxKeys: 4 })),
  notify: fc.constantFrom('silent', 'done_only', 'state_changes', 'never'),
  sessionKey: fc.constantFrom('s', 'x'.repeat(256), 'x'.repeat(257)),
  idempotencyKey: fc.constantFrom('k', 'x'.repeat(257)),
});
const success = mostly({
  type: fc.constantFrom('succeeded', 'succeeded', 'succeeded', 'succeeded', 'failed'),
  runId: fc.constantFrom('ab12', 'cd34', 'ef56', 'x'.repeat(33)),
  leaseToken: fc.constantFrom('t', 'u', 'v', 'x'.repeat(129)),
  seq: fc.integer({ min: 0, max: 5 }),
  at: fc.integer(),
  summary: fc.string(),
  exitCode: fc.integer(),
});
const request = mostly({
  agentId: fc.constantFrom('a1', 'b2', 'c3', '-a'),
  instanceId: fc.constantFrom('i', 'j', 'k', 'x'.repeat(129)),
  reports: fc.array(success, { maxLength: 3 }),
  next: fc.constantFrom(1, 64, 1024, 1025),
});

describe('what is recognised quickly', () => {
  it('of tasks to submit is what the schema accepts, unchanged', () => {
    const schema = z.array(submissionSchema).min(1).max(1_000);
    let recognised = 0;
    fc.assert(
      fc.property(fc.array(submission, { maxLength: 2 }), (body) => {
        const quick = plainSubmissions(body, 1_000);
        if (quick === undefined) return;
        recognised += 1;
        expect(schema.parse(structuredClone(body))).toEqual(quick);
        expect(body.map(plainSubmission)).toEqual(quick);
      }),
      { numRuns: 3_000 },
    );
    expect(recognised).toBeGreaterThan(20);
  });

  it('of reports is what the schema accepts, unchanged', () => {
    let recognised = 0;
    fc.assert(
      fc.property(request, (body) => {
        const quick = plainSuccesses(body);
        if (quick === undefined) return;
        recognised += 1;
        expect(reportRequestSchema.parse(structuredClone(body))).toEqual(quick);
      }),
      { numRuns: 5_000 },
    );
    expect(recognised).toBeGreaterThan(20);
  });

  it('is the usual body of a program and of an agent', () => {
    expect(plainSubmissions([{ template: 'a', args: { n: 1, s: 'x', b: true } }], 5)).toHaveLength(1);
    expect(plainSubmissions([], 5)).toBeUndefined();
    expect(
      plainSubmissions(
        [
          { template: 'a', args: {} },
          { template: 'a', args: {} },
        ],
        1,
      ),
    ).toBeUndefined();
    const report = { runId: 'ab12', leaseToken: 't', seq: 1, at: 5, type: 'succeeded', summary: '', exitCode: 0 };
    expect(plainSuccesses({ agentId: 'a', instanceId: 'i', reports: [report], next: 3 })).toBeDefined();
  });
});
