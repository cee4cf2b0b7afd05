#!/usr/bin/env node
import { run } from './program.ts';

// `errand tasks list | head` closes our output early; that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0);
  throw error;
});

process.exit(
  await run(process.argv.slice(2), {
    env: process.env,
    cwd: process.cwd(),
    out: (text) => void process.stdout.write(text),
    err: (text) => void process.stderr.write(text),
  }),
);
