import { Command } from 'commander';
import { VERSION } from '../version.ts';
import { accessCommands } from './access.ts';
import { agentCommand } from './agent.ts';
import { agentsCommands } from './agents.ts';
import { breakersCommands } from './breakers.ts';
import { checkCommand } from './check.ts';
import { type Act, actWith, type Io } from './context.ts';
import { controlsCommands } from './controls.ts';
import { deadLettersCommands } from './dead-letters.ts';
import { effectCommands } from './effect.ts';
import { effectsCommands } from './effects.ts';
import { reportFailure } from './failure.ts';
import { flowsCommands } from './flows.ts';
import { gatewayCommand } from './gateway.ts';
import { outboxCommands } from './outbox.ts';
import { sendCommand } from './send.ts';
import { tasksCommands } from './tasks.ts';
import { templatesCommands } from './templates.ts';
import { upCommand } from './up.ts';

const COMMANDS = [
  upCommand,
  gatewayCommand,
  agentCommand,
  sendCommand,
  tasksCommands,
  flowsCommands,
  agentsCommands,
  accessCommands,
  templatesCommands,
  outboxCommands,
  deadLettersCommands,
  effectsCommands,
  effectCommands,
  breakersCommands,
  controlsCommands,
  checkCommand,
  versionCommand,
];

/** Runs one command line and answers its exit code; never throws. @param args without node and script */
export async function run(args: readonly string[], io: Io): Promise<number> {
  let exitCode = 0;
  const program = createProgram(
    io,
    actWith(io, (code) => {
      exitCode = code;
    }),
  );
  try {
    await program.parseAsync([...args], { from: 'user' });
    return exitCode;
  } catch (error) {
    return reportFailure(io, error, args.includes('--json'));
  }
}

function createProgram(io: Io, act: Act): Command {
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
  for (const add of COMMANDS) add(program, act);
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
