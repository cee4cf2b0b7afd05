import { Command } from 'commander';
import { VERSION } from '../version.ts';
import { type Act, actWith, type Io } from './context.ts';
import { reportFailure } from './failure.ts';

type Adds = (program: Command, act: Act) => void;

/**
 * The files of the command line, in the order of the help, each with the words that lead to it: a command loads its own and no other,
 * since loading all takes most of the time that a short command lasts.
 */
const FILES: readonly (readonly [words: readonly string[], load: () => Promise<Adds>])[] = [
  [['up'], async () => (await import('./up.ts')).upCommand],
  [['gateway'], async () => (await import('./gateway.ts')).gatewayCommand],
  [['agent'], async () => (await import('./agent.ts')).agentCommand],
  [['send'], async () => (await import('./send.ts')).sendCommand],
  [['tasks'], async () => (await import('./tasks.ts')).tasksCommands],
  [['flows'], async () => (await import('./flows.ts')).flowsCommands],
  [['agents'], async () => (await import('./agents.ts')).agentsCommands],
  [['access'], async () => (await import('./access.ts')).accessCommands],
  [['templates'], async () => (await import('./templates.ts')).templatesCommands],
  [['inbox'], async () => (await import('./inbox.ts')).inboxCommands],
  [['outbox'], async () => (await import('./outbox.ts')).outboxCommands],
  [['dead-letters'], async () => (await import('./dead-letters.ts')).deadLettersCommands],
  [['effects'], async () => (await import('./effects.ts')).effectsCommands],
  [['effect'], async () => (await import('./effect.ts')).effectCommands],
  [['breakers'], async () => (await import('./breakers.ts')).breakersCommands],
  [['pools', 'lanes', 'limits', 'drain'], async () => (await import('./controls.ts')).controlsCommands],
  [['check'], async () => (await import('./check.ts')).checkCommand],
  [['version'], async () => versionCommand],
];

/** Those that the words name; all where they name none, for the help and for what is misspelt. */
async function addsFor(args: readonly string[]): Promise<Adds[]> {
  const named = FILES.filter(([words]) => words.some((word) => args.includes(word)));
  return Promise.all((named.length > 0 && !isForHelp(args) ? named : FILES).map(([, load]) => load()));
}

/** The help of the whole lists every command. */
const isForHelp = (args: readonly string[]) => args[0] === 'help' || args[0] === '--help' || args[0] === '-h';

/** Runs one command line and answers its exit code; never throws. @param args without node and script */
export async function run(args: readonly string[], io: Io): Promise<number> {
  let exitCode = 0;
  try {
    const program = createProgram(
      io,
      actWith(io, (code) => {
        exitCode = code;
      }),
      await addsFor(args),
    );
    await program.parseAsync([...args], { from: 'user' });
    return exitCode;
  } catch (error) {
    return reportFailure(io, error, args.includes('--json'));
  }
}

function createProgram(io: Io, act: Act, adds: readonly Adds[]): Command {
  const program = new Command('errand')
    .description('Chat-triggered automation gateway: send a bot on an errand, it comes home with the answer.')
    .version(VERSION, '-V, --version')
    .option('--json', 'answers as JSON, errors as problem JSON')
    .option('--url <url>', 'the gateway (default: ERRAND_URL, else http://127.0.0.1:$ERRAND_PORT)')
    .option('--token <token>', 'the admin token (default: ERRAND_TOKEN, else the state folder of this machine)')
    .option(
      '--settings <file>',
      'env file with settings; the environment goes before it (default: .env where there is one)',
    )
    .option('--no-settings', 'read no env file, only the environment')
    .addHelpText(
      'after',
      '\nExit codes: 0 done, 1 failed, 2 usage or configuration, 3 not found, 4 refused or conflict, 5 gateway unreachable.',
    );
  for (const add of adds) add(program, act);
  forAll(program, (command) => {
    command.exitOverride().showHelpAfterError(false).configureHelp({ showGlobalOptions: true });
    // Usage errors are told by `reportFailure`, like all others.
    command.configureOutput({ writeOut: io.out, writeErr: io.out, outputError: () => undefined });
  });
  return program;
}

function forAll(command: Command, action: (command: Command) => void): void {
  action(command);
  for (const inner of command.commands) forAll(inner, action);
}

function versionCommand(program: Command, act: Act): void {
  program
    .command('version')
    .description('print the version of this program')
    .action(act(async ({ show }) => show({ version: VERSION }, () => VERSION)));
}
