import { channelContract } from '../../contract/channel.contract.ts';
import { startRig, USER } from './rig.ts';

const FAULTS = {
  busy: { errcode: 45009, errmsg: 'api freq out of limit' },
  cut: 'drop after accepting',
  blocked: { errcode: 81013, errmsg: 'user & party & tag all invalid' },
} as const;

channelContract(
  'wecom',
  async () => {
    // Three seconds pass with every look at the clock, so that a long text stays below thirty messages a minute.
    let now = Date.now();
    const clock = { now: () => (now += 3_000) };
    const rig = await startRig({ clock, channel: { timestampWindowMs: 'off' } });
    const plaintexts = new Map<string, string>();
    const confirmed = new Set<string>();
    const { fake } = rig;
    return {
      channel: rig.channel,
      port: rig.port,
      route: { channel: 'wecom', account: 'default', chat: USER, chatKind: 'direct' },
      get secrets() {
        return [fake.secret, fake.token, fake.encodingAesKey, ...(fake.accessToken ? [fake.accessToken] : [])];
      },
      logText: rig.logText,
      personWrites: async (text) => {
        const key = fake.newMessageId();
        plaintexts.set(key, text);
        void fake
          .userSends({ user: USER, text, messageId: key })
          .then(({ status }) => status === 200 && confirmed.add(key));
        return key;
      },
      deliverAgain: async (key) => {
        await fake.userSends({ user: USER, text: plaintexts.get(key)!, messageId: key });
      },
      confirmed: (key) => confirmed.has(key),
      received: () => fake.history(USER),
      breakNextSend: async (fault) => {
        if (fault === 'refused') await fake.stop();
        else fake.script('message/send', FAULTS[fault]);
      },
      stop: rig.stop,
    };
  },
  { faults: ['busy', 'cut', 'blocked', 'refused'], repeatIsSafe: true },
);
