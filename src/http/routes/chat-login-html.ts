import type { Lang } from '../../sessions/lang.ts';

export type LoginScreen =
  /** @property token of an open link */
  { readonly screen: 'button'; readonly token: string } | { readonly screen: 'closed' | 'revoked' };

const WORDS = {
  en: {
    title: 'Errand: sign in',
    button: 'Sign in',
    lead: 'This link signs this browser in to the chat. It works once.',
    closed: 'This link has been used or is too old. Ask the administrator for a new one.',
    revoked: 'Your access was taken back. Ask the administrator.',
  },
  zh: {
    title: 'Errand：登录',
    button: '登录',
    lead: '此链接用于在本浏览器登录聊天，只能使用一次。',
    closed: '链接已使用或已过期，请向管理员索取新的链接。',
    revoked: '您的访问权限已被收回，请联系管理员。',
  },
} as const;

/** The language a browser asks for first. */
export function loginLang(acceptLanguage: string | undefined): Lang {
  return /^\s*zh\b/i.test(acceptLanguage ?? '') ? 'zh' : 'en';
}

/** A page without scripts; its style sheet is one of the built page's files. */
export function loginHtml(lang: Lang, shown: LoginScreen): string {
  const words = WORDS[lang];
  const body =
    shown.screen === 'button'
      ? `<p>${words.lead}</p>
    <form method="post" action="/chat/login">
      <input type="hidden" name="token" value="${escapeHtml(shown.token)}">
      <button type="submit">${words.button}</button>
    </form>`
      : `<p role="alert">${words[shown.screen]}</p>`;
  return `<!doctype html>
<html lang="${lang === 'zh' ? 'zh-CN' : 'en'}">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="robots" content="noindex">
  <title>${words.title}</title>
  <link rel="icon" href="/chat/assets/icon.svg">
  <link rel="stylesheet" href="/chat/assets/login.css">
</head>
<body>
  <main>
    <img src="/chat/assets/icon.svg" alt="" width="56" height="56">
    <h1>Errand</h1>
    ${body}
  </main>
</body>
</html>
`;
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}
