import { defineConfig } from 'vite';

/** The web chat page: `npx vite build` writes `dist/console`, which the gateway serves under `/chat/assets/`. */
export default defineConfig({
  root: 'console',
  base: '/chat/assets/',
  build: {
    outDir: '../dist/console',
    emptyOutDir: true,
    // The gateway lets browsers keep what lies here for good: the names hold a hash of the content.
    assetsDir: 'hashed',
    // A file of its own each: the content security policy allows no data: URLs.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
  },
});
