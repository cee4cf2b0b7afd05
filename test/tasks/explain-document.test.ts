import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';
import {
  decide,
  HAND_BACK_LIMITS,
  MAX_UNSTARTED_LOSSES,
  POSTPONE_LIMITS,
  type RunEnd,
  type TaskFacts,
} from '../../src/tasks/decide.ts';
import { explain } from '../../src/tasks/explain.ts';
import { ERROR_CLASSES, ON_LOST } from '../../src/tasks/run-words.ts';
import { isFinal, TASK_STATES, type TaskState } from '../../src/tasks/states.ts';
import { explained, factsWith, NOW, whyDocument } from './explain-samples.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const FILE = join(ROOT, 'docs', 'why.md');
const [BEGIN, END] = ['<!-- generated: begin -->', '<!-- generated: end -->'];

it('docs/why.md shows every cause with its sentences (UPDATE_DOCS=1 writes it anew)', () => {
  const [before, rest] = readFileSync(FILE, 'utf8').split(BEGIN);
  const [shown, after] = rest!.split(END);
  if (process.env.UPDATE_DOCS) writeFileSync(FILE, `${before}${BEGIN}\n\n${whyDocument()}\n\n${END}${after}`);
  else expect(shown!.trim()).toBe(whyDocument());
});

describe('every word has its sentence', () => {
  /** State → words, of everything that `decide` can answer. */
  function decided(): Set<string> {
    const pairs = new Set<string>();
    const ends: RunEnd[] = [
      ...(['succeeded', 'timed_out', 'cancelled', 'released', 'lost', 'blocked', 'needs_input'] as const).map(
        (outcome) => ({ outcome }),
      ),
      ...ERROR_CLASSES.flatMap((errorClass) =>
        [null, 5_000].map((retryAfterMs) => ({ outcome: 'failed' as const, errorClass, retryAfterMs })),
      ),
    ];
    for (const end of ends) for (const facts of everyFacts()) pairs.add(pairOf(decide(end, facts, () => 0.5)));
    return pairs;
  }

  function* everyFacts(): Generator<TaskFacts> {
    for (const attempt of [1, 3])
      for (const cancelRequested of [false, true])
        for (const started of [false, true])
          for (const onLost of ON_LOST)
            for (const unstartedLosses of [0, MAX_UNSTARTED_LOSSES])
              for (const [postponed, handBacks] of [
                [0, 0],
                [POSTPONE_LIMITS.count, HAND_BACK_LIMITS.count],
              ] as const)
                yield {
                  ...{ attempt, cancelRequested, started, onLost, unstartedLosses, postponed, handBacks },
                  ...{ maxAttempts: 3, retry: null, postponedMs: 0, ttlLeftMs: null },
                };
  }

  const pairOf = ({ to, reason }: { to: TaskState; reason: string | null }) => `${to} ${reason ?? ''}`.trim();

  /** `{ to: 'failed', reason: 'expired' }` and the like, wherever the code writes them. */
  function written(): Set<string> {
    const pairs = new Set<string>();
    for (const room of ['tasks', 'flows', 'agents', 'retention'])
      for (const path of readdirSync(join(ROOT, 'src', room), { recursive: true }).map(String)) {
        if (!path.endsWith('.ts') || /explain/.test(path)) continue;
        const text = readFileSync(join(ROOT, 'src', room, path), 'utf8');
        visit(ts.createSourceFile(path, text, ts.ScriptTarget.Latest), pairs);
      }
    return pairs;
  }

  function visit(node: ts.Node, pairs: Set<string>): void {
    if (ts.isObjectLiteralExpression(node)) {
      const named = new Map(
        node.properties.flatMap((property) =>
          ts.isPropertyAssignment(property) && ts.isIdentifier(property.name)
            ? [[property.name.text, property.initializer] as const]
            : [],
        ),
      );
      const to = named.get('to');
      const reason = named.get('reason');
      // Events tell a step (`type`), and so does what goes on (`head`): its row gets another word, or none.
      const isEvent = node.properties.some(
        ({ name }) => name && ts.isIdentifier(name) && (name.text === 'type' || name.text === 'head'),
      );
      if (!isEvent && to && reason && ts.isStringLiteralLike(to) && ts.isStringLiteralLike(reason))
        pairs.add(`${to.text} ${reason.text}`);
    }
    ts.forEachChild(node, (child) => visit(child, pairs));
  }

  const known = (pair: string) => {
    const [status, reason = null] = pair.split(' ') as [TaskState, string?];
    const runAt = status === 'queued' ? NOW + 10_000 : NOW;
    return explain(factsWith({ task: { status, reason: reason ?? null, runAt, attempt: 1, endedAt: NOW } }));
  };

  it('that decide writes', () => {
    const pairs = decided();
    expect(pairs.size).toBeGreaterThan(15);
    for (const pair of pairs) expectKnown(pair);
  });

  it('that the source writes elsewhere', () => {
    const pairs = written();
    // Made of parts there.
    for (const pair of ['waiting needs', 'cancelled deadline']) pairs.add(pair);
    expect(pairs.size).toBeGreaterThan(5);
    for (const pair of pairs) expectKnown(pair);
  });

  it('and one that nobody knows would be found', () => {
    expect(() => expectKnown('failed moon_phase')).toThrow();
    expect(() => expectKnown('queued moon_phase')).toThrow();
    expect(() => expectKnown('waiting moon_phase')).toThrow();
  });

  function expectKnown(pair: string): void {
    const [status, reason] = pair.split(' ') as [TaskState, string | undefined];
    const { reason: told, text } = known(pair);
    const shown = explained.filter((sample) => sample.status === status && sample.reason === told);
    expect({ pair, shown: shown.length > 0 }).toEqual({ pair, shown: true });
    // What has no sentence is told by its word.
    expect(text.en).not.toContain(`(${reason})`);
    if (isFinal(status)) expect(told).toBe(reason ?? status);
    // Words of a wait have causes of their own: one that is not known falls back to the general one of its state.
    else if (status === 'waiting') expect(WAITS[reason!]).toBe(told);
    else if (status === 'queued' && reason !== undefined)
      expect({ pair, told }).not.toEqual({ pair, told: 'scheduled' });
    expect(text.en.length).toBeGreaterThan(10);
  }

  const WAITS: Record<string, string> = {
    needs_input: 'question',
    blocked: 'blocked',
    lost_ask: 'lost_ask',
    needs: 'needs',
  };
});

it('there is a cause for every state', () => {
  expect(new Set(explained.map(({ status }) => status))).toEqual(new Set(TASK_STATES));
});

it('sentences fit on a phone, are sentences, and hold no word that only builders know', () => {
  for (const { text, next, reason } of explained)
    for (const words of [text, next].filter((each) => each !== undefined)) {
      expect(words.en.length, words.en).toBeLessThanOrEqual(160);
      expect(words.zh.length, words.zh).toBeLessThanOrEqual(80);
      expect(words.en, reason).toMatch(/^[A-Z].*[.?]$/s);
      expect(words.zh, reason).toMatch(/[。？?]$/);
      expect(words.zh, reason).toMatch(/\p{Script=Han}/u);
      expect(words.en, reason).not.toMatch(
        /\b(lease|band|stream|queue|breaker|fence|claim|slot|gate|serial|attempt|instance|ttl|null|undefined|NaN)\b/i,
      );
    }
});
