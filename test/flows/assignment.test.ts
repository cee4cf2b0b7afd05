import { expect, it } from 'vitest';
import { assignmentOf } from '../../src/flows/assignment.ts';
import { readTemplate } from '../../src/flows/template-file.ts';
import { idCodec } from '../../src/ids.ts';
import type { Grant } from '../../src/tasks/claim.ts';

const ids = idCodec(Buffer.from('key'));
const reading = readTemplate(
  'report.yaml',
  `
id: report
args: { room: { required: true }, note: {} }
command: [node, report.mjs, --room, "{{room}}", "{{note}}"]
env: { MODE: fast }
secrets: [PSB_TOKEN]
limits: { output: 64KiB }
`,
);
if (!('template' in reading)) throw new Error(JSON.stringify(reading.problems));
const templates = { get: (id: string) => (id === 'report' ? reading.template : undefined) };

const grant = (more: Partial<Grant['task']> = {}): Grant => ({
  runId: 5,
  taskId: 4,
  attempt: 1,
  leaseToken: 't',
  task: {
    id: 4,
    template: 'report',
    runtime: 'shell',
    args: '{"room":"302"}',
    idempotency: null,
    generation: 1,
    attempt: 0,
    timeout_ms: 1_000,
    checkpoint_version: null,
    ...more,
  },
});

it('the template says what is run; the task fills in its arguments', () => {
  expect(assignmentOf(templates, ids, grant())).toMatchObject({
    template: 'report',
    runtime: 'shell',
    args: { room: '302' },
    secrets: ['PSB_TOKEN'],
    timeoutMs: 1_000,
    limits: { outputBytes: 65_536 },
    spec: { argv: ['node', 'report.mjs', '--room', '302'], env: { MODE: 'fast' } },
  });
});

it('the key for outside effects is the task’s own, or the task itself, and the same at every attempt', () => {
  const key = (task: Partial<Grant['task']>) => assignmentOf(templates, ids, grant(task))!.idempotencyKey;
  expect(key({ idempotency: '["report","agent:main","302:today"]' })).toBe('302:today');
  expect(key({})).toBe(`task:${ids.encode(4)}`);
  expect(key({ attempt: 2, generation: 3 })).toBe(key({}));
});

it('a template that is gone has no assignment; one that refuses a stored value says which', () => {
  expect(assignmentOf(templates, ids, grant({ template: 'gone' }))).toBeUndefined();
  expect(() => assignmentOf(templates, ids, grant({ args: '{"room":"-rf","note":"-x"}' }))).toThrow(/room|note/);
});
