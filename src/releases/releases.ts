import type { ReleaseOffer } from '../agents/protocol.ts';
import { AppError } from '../errors.ts';
import type { Log } from '../log.ts';
import { audit } from '../sessions/audit.ts';
import type { ReleaseTable } from '../store/release-tables.ts';
import type { Store } from '../store/store.ts';
import { isNewerVersion } from '../version.ts';
import { type AgentNote, AgentNotes } from './agent-notes.ts';
import { PackageFiles } from './package-files.ts';
import { allReleases, markWithdrawn, putRelease } from './queries.ts';

export interface ReleaseView extends ReleaseOffer {
  publishedAt: number;
  publishedBy: string;
  /** Null while it may be loaded. */
  withdrawnAt: number | null;
  /** What agents are told to run. */
  current: boolean;
}

export interface ReleasesOptions {
  store: Store;
  log: Log;
  /** Holds the packages. */
  dir: string;
}

/** Packages of the agent: published by a person, named in every heartbeat, loaded by agents. The current one is the last published. */
export class Releases {
  readonly notes: AgentNotes;
  readonly #store: Store;
  readonly #files: PackageFiles;
  /** Newest first. */
  #rows: readonly ReleaseTable[] = [];
  #current: ReleaseOffer | undefined;

  constructor({ store, log, dir }: ReleasesOptions) {
    this.#store = store;
    this.#files = new PackageFiles(dir);
    this.notes = new AgentNotes(store, log);
  }

  async start(): Promise<void> {
    await this.#files.prepare();
    await this.notes.load();
    await this.#load();
  }

  async stop(): Promise<void> {}

  /** What agents are to run; undefined where nothing is published. */
  current(): ReleaseOffer | undefined {
    return this.#current;
  }

  /** What an answer to an agent says about versions. @param own what the gateway itself is */
  news(agentVersion: string | undefined, own: string) {
    const release = this.#current;
    if (!release) return { latestVersion: own, hasUpdate: false };
    const hasUpdate = agentVersion !== undefined && isNewerVersion(release.version, agentVersion);
    return { latestVersion: release.version, hasUpdate, release };
  }

  /** What an agent has to tell. How it got on with a release that is offered no more is nobody's concern. */
  noteOf(agentId: string): AgentNote {
    const { deadReports, upgrade } = this.notes.of(agentId);
    return { deadReports, upgrade: upgrade?.version === this.#current?.version ? upgrade : undefined };
  }

  list(): ReleaseView[] {
    return this.#rows.map((row) => this.#view(row));
  }

  /**
   * Stores a package and makes it the current one. The same again is no mistake; it becomes the current one again.
   * @throws AppError conflict where the version has another content, too_large, storage_full
   */
  async publish(
    request: { version: string; signature: string | null; actor: string },
    content: AsyncIterable<Uint8Array>,
  ): Promise<ReleaseView> {
    const { version, signature, actor } = request;
    const { sha256, bytes } = await this.#files.store(content);
    const row = await this.#enter({ version, sha256, bytes, signature }, actor).catch(async (error: unknown) => {
      if (!this.#rows.some((other) => other.sha256 === sha256 && other.withdrawn_at === null))
        await this.#files.remove(sha256);
      throw error;
    });
    await this.#load();
    return this.#view(row);
  }

  /** It is offered to nobody any more, and its content is removed; the one before it is the current one again. @throws AppError not_found */
  async withdraw(version: string, actor: string): Promise<ReleaseView> {
    await this.#store.transact('release.withdraw', async (tx) => {
      if (!(await markWithdrawn(tx, version)))
        throw new AppError('not_found', `there is no release ${JSON.stringify(version)}`);
      await audit(tx, { actor, action: 'release.withdrawn', target: version });
    });
    await this.#load();
    const row = this.#rows.find((other) => other.version === version)!;
    const isUsed = this.#rows.some((other) => other.sha256 === row.sha256 && other.withdrawn_at === null);
    if (!isUsed) await this.#files.remove(row.sha256);
    return this.#view(row);
  }

  /** Where the package of a version is. @throws AppError not_found */
  async packageOf(version: string): Promise<{ path: string; bytes: number; sha256: string }> {
    const row = this.#rows.find((other) => other.version === version && other.withdrawn_at === null);
    if (!row) throw new AppError('not_found', `there is no release ${JSON.stringify(version)}`);
    const { sha256, bytes } = row;
    return { path: await this.#files.find(row), bytes, sha256 };
  }

  #enter(offer: ReleaseOffer, actor: string): Promise<ReleaseTable> {
    const { version, sha256, bytes, signature } = offer;
    return this.#store.transact('release.publish', async (tx) => {
      const known = (await allReleases(tx)).find((other) => other.version === version);
      if (known && known.sha256 !== sha256)
        throw new AppError('conflict', `version ${version} was published with another content: give it a new number`);
      const entry: ReleaseTable = {
        id: await tx.ids(1),
        version,
        sha256,
        bytes,
        signature,
        published_at: tx.now,
        published_by: actor,
        withdrawn_at: null,
      };
      await putRelease(tx, entry);
      const data = { sha256, bytes, signed: signature !== null };
      await audit(tx, { actor, action: 'release.published', target: version, data });
      return entry;
    });
  }

  async #load(): Promise<void> {
    this.#rows = await allReleases(this.#store);
    const row = this.#rows.find((other) => other.withdrawn_at === null);
    this.#current = row && offerOf(row);
  }

  #view(row: ReleaseTable): ReleaseView {
    return {
      ...offerOf(row),
      publishedAt: row.published_at,
      publishedBy: row.published_by,
      withdrawnAt: row.withdrawn_at,
      current: row.version === this.#current?.version,
    };
  }
}

function offerOf({ version, sha256, signature, bytes }: ReleaseTable): ReleaseOffer {
  return { version, sha256, signature, bytes };
}
