import { describe, expect, it } from 'vitest';
import type { RichText } from '../../src/channels/channel.ts';
import * as wording from '../../src/notifications/wording.ts';
import { SUMMARY_LIMIT, type Subject, titleFor } from '../../src/notifications/wording.ts';
import { FINAL_STATES } from '../../src/tasks/states.ts';
import type { TaskEnd } from '../../src/tasks/task.ts';
import { sentenceOf } from '../../src/text.ts';

const finalText = (...about: Parameters<typeof wording.finalText>) => wording.finalText(...about).text;
const blockedText = (...about: Parameters<typeof wording.blockedText>) => wording.blockedText(...about).text;
const progressText = (...about: Parameters<typeof wording.progressText>) => wording.progressText(...about).text;
const stateText = (...about: Parameters<typeof wording.stateText>) => wording.stateText(...about)?.text;

const en: Subject = { lang: 'en', title: 'Hello', id: 'k7q2' };
const zh: Subject = { lang: 'zh', title: '问候', id: 'k7q2' };

function end(more: Partial<TaskEnd> = {}): TaskEnd {
  return {
    summary: null,
    error: null,
    errorClass: null,
    reason: null,
    attempt: 1,
    tookMs: 3_000,
    finishedBeforeCancel: false,
    ...more,
  };
}

describe('the final message', () => {
  it('tells success, time and result, and nothing to do', () => {
    expect(finalText(en, 'succeeded', end({ summary: 'Hello, Ada!\n' }))).toBe('✅ Hello — done in 3 s\nHello, Ada!');
    expect(finalText(zh, 'succeeded', end({ summary: '你好' }))).toBe('✅ 问候 已完成，用时 3 秒\n你好');
  });

  it('says that a cancel came too late', () => {
    const late = end({ finishedBeforeCancel: true, reason: 'finished_before_cancel' });
    expect(finalText(en, 'succeeded', late)).toContain('finished before it could be cancelled');
    expect(finalText(zh, 'succeeded', late)).toContain('取消之前已经完成');
  });

  it('tells one sentence of a failure, what was printed, and how to go on', () => {
    const text = finalText(
      en,
      'failed',
      end({
        error: 'Error: no such room\n    at check (x.js:1:1)',
        summary: 'looking\n    at check (x.js:1:1)\nfor 302',
      }),
    );
    expect(text).toBe('❌ Hello failed: no such room\nlooking\nfor 302\n/retry k7q2 · /logs k7q2');
  });

  it('counts the tries once there was more than one', () => {
    expect(finalText(en, 'failed', end({ error: 'busy', attempt: 3 }))).toContain('failed after 3 tries: busy');
    expect(finalText(zh, 'timed_out', end({ attempt: 2 }))).toContain('已尝试 2 次');
  });

  it('says why the engine has lost its patience, before what the last run said', () => {
    const limited = end({ reason: 'rate_limited_too_long', error: 'HTTP 429' });
    expect(finalText(en, 'failed', limited)).toContain('asked again and again to come back later (HTTP 429)');
    expect(finalText(zh, 'failed', limited)).toContain('对方一再要求稍后再试（HTTP 429）');
    const killer = end({ reason: 'never_started', error: 'the agent stopped answering', attempt: 0 });
    expect(finalText(en, 'lost', killer)).toContain('was lost: machine after machine stopped answering');
    expect(finalText(zh, 'lost', killer)).toContain('每台领取它的机器');
  });

  it('offers no log of what never ran', () => {
    expect(finalText(en, 'cancelled', end({ attempt: 0, reason: 'cancel_requested' }))).toBe(
      '🚫 Hello was cancelled\n/retry k7q2',
    );
    const behindBreaker = end({ attempt: 0, reason: 'breaker_open', error: 'the breaker psb is open: …' });
    expect(finalText(en, 'failed', behindBreaker)).toBe(
      '❌ Hello failed: the service it needs is not available right now\n/retry k7q2',
    );
    expect(finalText(zh, 'failed', behindBreaker)).toContain('所需的服务目前不可用');
    expect(finalText(en, 'failed', end({ attempt: 0, reason: 'expired' }))).toContain('waited too long');
    const said = { error: 'the deadline was reached', errorZh: '期限已到' };
    expect(finalText(en, 'failed', end({ attempt: 0, reason: 'deadline', ...said }))).toContain(said.error);
    expect(finalText(zh, 'failed', end({ attempt: 0, reason: 'deadline', ...said }))).toContain('失败：期限已到');
  });

  it('shows head and tail of a long result and where the rest is', () => {
    const text = finalText(en, 'succeeded', end({ summary: `begin ${'x'.repeat(50_000)} end` }));
    expect(text.length).toBeLessThan(SUMMARY_LIMIT + 200);
    expect(text).toMatch(/begin x+\n… \d+ characters left out; \/logs k7q2\nx+ end$/);
  });

  it.each(FINAL_STATES)('%s shows no stored word, in no language', (state) => {
    for (const subject of [en, zh]) {
      for (const reason of ['attempts_used_up', 'permanent_error', 'cancel_requested', 'expired', null]) {
        expect(finalText(subject, state, end({ reason, attempt: 2 }))).not.toMatch(
          /_|permanent|transient|undefined|null/,
        );
      }
    }
  });

  it('gives every state an icon of its own', () => {
    const icons = FINAL_STATES.map((state) => [...finalText(en, state, end())][0]);
    expect(new Set(icons).size).toBe(FINAL_STATES.length);
  });
});

describe('the other messages', () => {
  it('say what a person has to do', () => {
    expect(blockedText(en, 'the quota is used up', false)).toBe(
      '✋ Hello needs you: the quota is used up\n/retry k7q2 to go on · /cancel k7q2',
    );
    expect(blockedText(zh, '要继续吗', true)).toContain('问候 有个问题：要继续吗');
    expect(blockedText(en, '', false)).toContain('please have a look');
    expect(blockedText(en, '', false, 'lost_ask')).toMatch(
      /nobody knows how far it came\n\/retry k7q2 to run it again/,
    );
    expect(blockedText(en, 'the quota is used up', false, 'blocked')).toContain('needs you: the quota is used up');
  });

  it('tell real changes and keep silent about leases and what other messages tell', () => {
    expect(stateText(en, 'leased', 'running', null)).toBe('▶️ Hello is running');
    expect(stateText(en, 'running', 'queued', 'lease_expired')).toBe(
      '🔁 Hello is queued again (the machine it ran on stopped answering)',
    );
    expect(stateText(zh, 'running', 'queued', 'transient_error')).toBe('🔁 问候 重新排队（临时故障）');
    expect(stateText(en, 'queued', 'paused', null)).toContain('paused');
    expect(stateText(en, 'paused', 'queued', null)).toContain('goes on');
    for (const to of ['leased', 'waiting', 'succeeded', 'failed', 'cancelled'] as const)
      expect(stateText(en, 'queued', to, null)).toBeUndefined();
  });

  it('tell progress with what there is of it', () => {
    expect(progressText(en, 42.4, 'half\nway')).toBe('⏳ Hello — 42 %, half way');
    expect(progressText(zh, 42, null)).toBe('⏳ 问候：42 %');
    expect(progressText(en, null, 'working')).toBe('⏳ Hello — working');
  });
});

describe('names and sentences', () => {
  it('come from the template, else its id, with the label behind', () => {
    expect(titleFor('Report', 'hotel-report', null)).toBe('Report');
    expect(titleFor(undefined, 'hotel-report', null)).toBe('hotel-report');
    expect(titleFor('Report', 'hotel-report', 'room 302')).toBe('Report · room 302');
  });

  it('take the last line of a Python traceback and the first of anything else', () => {
    expect(sentenceOf('Traceback (most recent call last):\n  File "x.py", line 1\nValueError: bad room')).toBe(
      'ValueError: bad room',
    );
    expect(sentenceOf('\n\nfirst\nsecond')).toBe('first');
    expect(sentenceOf(null)).toBe('');
    expect(sentenceOf('y'.repeat(1_000)).length).toBeLessThanOrEqual(240);
  });
});

describe('how messages look', () => {
  const looks = ({ text, marks = [] }: RichText) =>
    marks.map(({ kind, start, length }) => `${kind}:${text.slice(start, start + length)}`);

  it('titles are bold, what is typed is code, output of several lines keeps its columns', () => {
    const failed = wording.finalText(en, 'failed', end({ error: 'no', summary: 'a\n  b' }));
    expect(looks(failed)).toEqual(['bold:Hello', 'pre:a\n  b', 'code:/retry k7q2', 'code:/logs k7q2']);
    expect(looks(wording.blockedText(zh, '', true))).toEqual(['bold:问候', 'code:/retry k7q2', 'code:/cancel k7q2']);
    expect(looks(wording.progressText(en, 40, 'half'))).toEqual(['bold:Hello']);
    expect(looks(wording.stateText(zh, 'queued', 'running', null)!)).toEqual(['bold:问候']);
    for (const state of FINAL_STATES) expect(looks(wording.finalText(en, state, end()))[0]).toBe('bold:Hello');
  });

  it('output is Markdown only where its template says so', () => {
    const summary = '**3** rooms';
    expect(wording.finalText(en, 'succeeded', end({ summary })).text).toContain('**3** rooms');
    const read = wording.finalText({ ...en, summary: 'markdown' }, 'succeeded', end({ summary }));
    expect(read.text).toMatch(/\n3 rooms$/);
    expect(looks(read)).toEqual(['bold:Hello', 'bold:3']);
  });

  it('a long output keeps its look on both sides of what is left out', () => {
    const summary = Array.from({ length: 2_000 }, (_, n) => `line ${n}`).join('\n');
    const said = wording.finalText(en, 'succeeded', end({ summary }));
    expect(looks(said).slice(1)).toEqual([expect.stringMatching(/^pre:line 0\n/), expect.stringMatching(/line 1999$/)]);
  });
});
