import { render } from 'preact';
import { App } from './app.tsx';
import { open } from './conversation.ts';
import './style.css';
import { LANGUAGE } from './words.ts';

document.documentElement.lang = LANGUAGE;
render(<App />, document.getElementById('app')!);
void open();
