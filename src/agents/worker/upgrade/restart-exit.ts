/** An agent ends with this code when another version is to be started in its place. */
export const RESTART_EXIT = 85;
