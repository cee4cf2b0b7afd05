import { AppError } from '../errors.ts';

export interface UnitOptions {
  agentId: string;
  /** Absolute. */
  settingsFile: string;
  /** Folders that the agent writes to; absolute. Everything else is read-only for it and its programs. */
  writable: readonly string[];
  /** How long programs may take to end, milliseconds. */
  killGraceMs: number;
  /** As whom it runs. */
  user: string;
  /** The program and its first arguments; absolute paths. */
  command: readonly string[];
  /** It upgrades itself. */
  supervised?: boolean;
}

/** On top of the programs' grace the agent hands in its last reports; a stop that takes longer is cut off. Seconds. */
const STOP_MARGIN_S = 20;

/**
 * A systemd unit that runs the agent for good. Exit codes 2 (wrong settings) and 4 (another instance has taken over) are not followed
 * by a restart: the latter would take over in turn, for ever. @throws AppError invalid_config where a path cannot be written in a unit
 */
export function systemdUnit(options: UnitOptions): string {
  const { agentId, settingsFile, writable, killGraceMs, user, command } = options;
  const start = [...command, 'agent', '--settings', settingsFile, ...(options.supervised ? ['--supervise'] : [])]
    .map(word)
    .join(' ');
  return `# Errand agent ${agentId}
[Unit]
Description=Errand agent ${agentId}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
User=${word(user)}
ExecStart=${start}
WorkingDirectory=${plainPath(writable[0] ?? '/')}
Restart=always
RestartSec=5
RestartPreventExitStatus=2 4
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec=${Math.ceil(killGraceMs / 1_000) + STOP_MARGIN_S}
UMask=0077
LimitNOFILE=65536

# What the agent and its programs may do. Programs that need more folders: add them to ReadWritePaths.
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths=${writable.map(word).join(' ')}
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
CapabilityBoundingSet=
AmbientCapabilities=

[Install]
WantedBy=multi-user.target
`;
}

/** One word of a unit: `%` and `$` are its own, blanks and quotes need quoting. */
function word(text: string): string {
  const safe = checked(text).replaceAll('%', '%%').replaceAll('$', '$$$$');
  return /^[A-Za-z0-9_.,:/@%+=~$-]+$/.test(safe) ? safe : `"${safe.replace(/["\\]/g, '\\$&')}"`;
}

/** The rest of a line, where nothing is quoted. */
function plainPath(text: string): string {
  return checked(text).replaceAll('%', '%%');
}

function checked(text: string): string {
  if (/[\u0000-\u001f\u007f]/.test(text))
    throw new AppError('invalid_config', `${JSON.stringify(text)} cannot be written in a unit: choose another path`);
  return text;
}
