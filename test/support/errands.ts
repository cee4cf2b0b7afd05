/** Small templates for tests of the rooms between a message and its answer; file name → YAML. */
export const ERRANDS: Record<string, string> = {
  'hello.yaml': `
id: hello
title: { en: Hello, zh: 问候 }
triggers: ["greet {name}", "问候 {name}"]
args:
  name: { type: string, max: 40, default: world }
command: [echo, "Hello, {{name}}!"]
`,
  'report.yaml': `
id: report
title: { en: Report a check-in, zh: 入住上报 }
triggers: ["上报 {room} {guest}", "/report {room} {guest}"]
args:
  room: { type: string, pattern: "[0-9]{3,4}", required: true }
  guest: { type: string, max: 40, required: true }
  day: { type: date, default: today }
command: [echo, "{{room}}", "{{guest}}", "{{day}}"]
idempotencyKey: "{{hash guest}}:{{room}}:{{day}}"
notify: state_changes
`,
  'quiet.yaml': `
id: quiet
title: { en: Quiet, zh: 静默 }
command: [echo, done]
notify: silent
`,
  'secret.yaml': `
id: secret
title: { en: Secret, zh: 机密 }
command: [echo, done]
roles: [admin]
`,
};
