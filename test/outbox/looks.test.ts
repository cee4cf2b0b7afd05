import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Channel, Mark, OutgoingMessage, Part, SendOutcome } from '../../src/channels/channel.ts';
import { split } from '../../src/channels/text.ts';
import { editMessages } from '../../src/outbox/edit.ts';
import { LEASE_MS, type LeasedMessage } from '../../src/outbox/leases.ts';
import { deliver, REPEAT_MARK } from '../../src/outbox/sending.ts';
import { bold, pre, rich } from '../../src/rich-text.ts';
import { final, Rig, route } from './rig.ts';

describe('looks of a message', () => {
  let rig: Rig;
  beforeEach(async () => {
    rig = await Rig.create();
  });
  afterEach(() => rig.end());
  const marksOf = async () =>
    (await rig.rows()).map(({ marks }) => (marks === null ? null : (JSON.parse(marks) as Mark[])));

  it('are stored with it and leased with it; a plain message has none', async () => {
    const said = rich`✅ ${bold('Hello')}`;
    await rig.enqueue(
      final('1', said.text, { marks: said.marks! }),
      final('2', 'plain'),
      final('3', 'empty', { marks: [] }),
    );
    expect(await marksOf()).toEqual([said.marks, null, null]);
    const ids = (await rig.rows()).map(({ id }) => id);
    const leased = await rig.store.write(rig.outbox.leases.lease, [ids[0]!]);
    const other = await rig.store.write(rig.outbox.leases.lease, [ids[1]!]);
    expect(leased[0]).toMatchObject({ text: said.text, marks: said.marks });
    expect(other[0]).not.toHaveProperty('marks');
  });

  it('stay around their words when a database refuses some of the text, and only sound ones are stored', async () => {
    const marks: Mark[] = [
      { kind: 'bold', start: 2, length: 3 },
      { kind: 'link', start: 0, length: 1, url: 'javascript:alert(1)' },
      { kind: 'code', start: 90, length: 5 },
    ];
    await rig.enqueue(final('1', '\0ab\0c\uD83D', { marks }));
    expect((await rig.rows())[0]!.text).toBe('abc\uFFFD');
    expect(await marksOf()).toEqual([[{ kind: 'bold', start: 1, length: 2 }]]);
  });

  it('change with the text of a message that people read from the row', async () => {
    const edit = (words: { text: string; marks?: readonly Mark[] }) =>
      rig.store.transact('test.edit', (tx) => editMessages(tx, [{ dedupeKey: 'd', ...words }], () => undefined));
    await rig.enqueue({ route: route('u', 'webchat'), kind: 'update', text: 'a', dedupeKey: 'd', sessionKey: 's' });
    await edit(rich`${bold('b')} c`);
    expect(await marksOf()).toEqual([[{ kind: 'bold', start: 0, length: 1 }]]);
    await edit({ text: 'plain' });
    expect(await marksOf()).toEqual([null]);
  });
});

describe('the parts of a message with looks', () => {
  const LONG = Array.from({ length: 400 }, (_, n) => `line ${n}`).join('\n');
  const message = (more: Partial<LeasedMessage>): LeasedMessage => ({
    id: 1,
    fence: 1,
    channel: 'telegram',
    account: 'default',
    chat: '1',
    route: route('1'),
    kind: 'final',
    text: LONG,
    maybeRepeat: false,
    safeRepeats: 0,
    giveUpAt: LEASE_MS,
    leaseUntil: LEASE_MS,
    partsSent: 0,
    platformIds: [],
    ...more,
  });

  /** Sends with answers as given, one per call; then everything is accepted. */
  async function send(leased: LeasedMessage, mostParts: number, ...answers: SendOutcome[]) {
    const calls: OutgoingMessage[] = [];
    const channel = {
      split: (said) => split(said, { max: 1_000, measure: 'utf16', mostParts }),
      send: async (part) => {
        calls.push(part);
        return answers.shift() ?? { outcome: 'sent', platformId: `p${calls.length}` };
      },
    } satisfies Partial<Channel> as unknown as Channel;
    const signal = new AbortController().signal;
    const limits = { timeoutMs: 10_000, graceMs: 10_000 };
    const options = {
      channel,
      publicId: 'm1',
      taskId: 'k7q2',
      safe: false,
      limits,
      signal,
      record: async () => 'go' as const,
    };
    return { result: (await deliver(leased, options))!, calls };
  }
  const whole = pre(LONG);

  it('are resumed at the part that failed, cut at the same places', async () => {
    const busy: SendOutcome = { outcome: 'retry', error: 'busy', scope: 'chat' };
    const ok: SendOutcome = { outcome: 'sent', platformId: 'p' };
    const first = await send(message(whole), 9, ok, ok, busy);
    expect(first.result).toMatchObject({ partsSent: 2, outcome: busy });
    const second = await send(message({ ...whole, partsSent: 2, platformIds: ['p', 'p'] }), 9);
    const text = (part: Part) => part.text.replace(/\n\(\d\/\d\)$/, '');
    expect([...first.calls.slice(0, 2), ...second.calls].map(text).join('\n')).toBe(LONG);
    for (const { marks } of second.calls) expect(marks).toMatchObject([{ kind: 'pre', start: 0 }]);
  });

  it('of a possible repeat keep their looks behind the words that say so', async () => {
    const { calls } = await send(message({ ...rich`✅ ${bold('Hello')}`, maybeRepeat: true }), 9);
    expect(calls[0]!.text).toBe(`${REPEAT_MARK}\n✅ Hello`);
    const [{ start, length }] = calls[0]!.marks as [Mark];
    expect(calls[0]!.text.slice(start, start + length)).toBe('Hello');
  });

  it('end with a file where they would be too many; a possible repeat of the file says so, too', async () => {
    const { calls } = await send(message(whole), 2);
    expect(calls.map((part) => part.file?.text)).toEqual([undefined, undefined, LONG]);
    expect(calls[2]!.file!.instead).toContain('/logs k7q2');
    const again = await send(message({ ...whole, partsSent: 2, maybeRepeat: true }), 2);
    expect(again.calls).toHaveLength(1);
    expect(again.calls[0]).toMatchObject({ text: `${REPEAT_MARK}\nmessage.txt\n(3/3)`, file: { text: LONG } });
  });
});
