import { type ChannelRig, channelContract, type SendFault } from '../../contract/channel.contract.ts';
import { busy, dropAfter, refuse } from '../../support/fake-telegram/answers.ts';
import type { Update } from '../../support/fake-telegram/updates.ts';
import { until } from '../../support/until.ts';
import { SECRET, telegramRig } from './rig.ts';

const ANN = 42;

async function setUp(mode: 'polling' | 'webhook'): Promise<ChannelRig> {
  const rig = await telegramRig({ mode });
  const { fake } = rig;
  if (mode === 'webhook') await until(() => fake.updates.webhook, 'the webhook to be set');
  const updates = new Map<string, Update>();
  return {
    channel: rig.channel,
    port: rig.port,
    route: { channel: 'telegram', account: 'default', chat: String(ANN), chatKind: 'direct' },
    secrets: [fake.token, SECRET],
    logText: rig.logText,
    personWrites: async (text) => {
      const update = fake.userSends({ chat: ANN, user: ANN, text });
      updates.set(String(update.update_id), update);
      return String(update.update_id);
    },
    deliverAgain: async (key) => {
      const before = rig.port.duplicates;
      fake.updates.again(updates.get(key)!);
      await until(() => rig.port.duplicates > before, 'the repeat to be delivered');
    },
    confirmed: (key) => fake.updates.confirmed.has(Number(key)),
    received: () => fake.botTexts(ANN),
    breakNextSend: (fault) => breakNextSend(fault, fake),
    stop: rig.stop,
  };
}

async function breakNextSend(fault: SendFault, fake: Awaited<ReturnType<typeof telegramRig>>['fake']): Promise<void> {
  if (fault === 'refused') return fake.goAway();
  const behaviours = {
    busy: busy(3),
    cut: dropAfter(),
    blocked: refuse(403, 'Forbidden: bot was blocked by the user'),
  };
  fake.script('sendMessage', behaviours[fault]);
}

const faults = ['busy', 'cut', 'blocked', 'refused'] as const;
channelContract('telegram by polling', () => setUp('polling'), { faults });
channelContract('telegram by webhook', () => setUp('webhook'), { faults });
