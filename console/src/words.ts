const ENGLISH = {
  you: 'You',
  bot: 'Errand',
  log: 'Conversation',
  field: 'Message',
  placeholder: 'Write a message or /help',
  send: 'Send',
  hint: 'Enter sends, Shift+Enter makes a new line',
  sending: 'Sending…',
  failed: 'Not sent.',
  retry: 'Try again',
  earlier: 'Earlier messages',
  online: 'Connected',
  offline: 'Reconnecting…',
  loading: 'Loading…',
  signOut: 'Sign out',
  signedOutTitle: 'You are signed out',
  signedOut: 'Open a login link to come in. The administrator can make one for you.',
  emptyTitle: 'What can I do for you?',
  empty: 'Send a command or plain words. I tell you how it goes and bring back the result.',
  tooLong: 'At most 8,000 characters.',
  today: 'Today',
  files: 'Files',
  showAll: 'Show all of it',
};

const CHINESE: typeof ENGLISH = {
  you: '我',
  bot: 'Errand',
  log: '对话',
  field: '消息',
  placeholder: '输入消息，或发送 /help',
  send: '发送',
  hint: 'Enter 发送，Shift+Enter 换行',
  sending: '发送中…',
  failed: '未发送成功。',
  retry: '重试',
  earlier: '更早的消息',
  online: '已连接',
  offline: '正在重新连接…',
  loading: '加载中…',
  signOut: '退出登录',
  signedOutTitle: '尚未登录',
  signedOut: '请打开登录链接进入，链接可由管理员提供。',
  emptyTitle: '有什么可以帮您？',
  empty: '发送命令或直接说明要做的事，我会告知进展并带回结果。',
  tooLong: '最多 8000 个字符。',
  today: '今天',
  files: '文件',
  showAll: '展开全文',
};

const isChinese = navigator.language.toLowerCase().startsWith('zh');

/** BCP 47 tag of the language in use. */
export const LANGUAGE = isChinese ? 'zh-CN' : 'en';

/** For dates and times: the region's customs, where the page speaks its language. */
export const LOCALE = isChinese || navigator.language.startsWith('en') ? navigator.language : LANGUAGE;

/** Every text of the page, in the browser's language. */
export const words = isChinese ? CHINESE : ENGLISH;
