import { Composer } from './composer.tsx';
import { isConnected, leave, me, phase } from './conversation.ts';
import { MessageLog } from './message-log.tsx';
import { words } from './words.ts';

export function App() {
  return (
    <div class="page">
      <Header />
      {phase.value === 'signed_out' ? <SignedOut /> : <Chat />}
    </div>
  );
}

function Header() {
  const isReady = phase.value === 'ready';
  return (
    <header class="top">
      <img src="/chat/assets/icon.svg" alt="" width="36" height="36" />
      <div class="who">
        <h1>Errand</h1>
        {isReady && (
          <p role="status" class={isConnected.value ? 'link on' : 'link off'}>
            {isConnected.value ? words.online : words.offline}
          </p>
        )}
      </div>
      {isReady && (
        <div class="me">
          <span class="name">{me.value?.name}</span>
          <button type="button" class="quiet" onClick={() => void leave()}>
            {words.signOut}
          </button>
        </div>
      )}
    </header>
  );
}

function Chat() {
  return (
    <>
      <MessageLog />
      <Composer />
    </>
  );
}

function SignedOut() {
  return (
    <main class="blank">
      <h2>{words.signedOutTitle}</h2>
      <p>{words.signedOut}</p>
    </main>
  );
}
