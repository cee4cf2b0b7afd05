import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { unpack } from '../../../src/agents/worker/upgrade/archive.ts';
import { entryIn } from '../../../src/agents/worker/upgrade/install-folder.ts';

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'errand-archive-'));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const target = () => join(dir, 'target');

interface Entry {
  name: string;
  text?: string;
  type?: string;
  link?: string;
  mode?: string;
}

/** A tar archive by hand, so that it may hold what no tar would write. */
function tar(...entries: Entry[]): Buffer {
  const blocks = entries.flatMap(({ name, text = '', type = '0', link = '', mode = '0000644' }) => {
    const header = Buffer.alloc(512);
    header.write(name, 0, 100);
    header.write(`${mode}\0`, 100);
    header.write(`${Buffer.byteLength(text).toString(8).padStart(11, '0')}\0`, 124);
    header.write(' '.repeat(8), 148);
    header.write(type, 156);
    header.write(link, 157, 100);
    header.write('ustar\x0000', 257);
    header.write(
      `${header
        .reduce((sum, byte) => sum + byte, 0)
        .toString(8)
        .padStart(6, '0')}\0 `,
      148,
    );
    const content = Buffer.alloc(Math.ceil(Buffer.byteLength(text) / 512) * 512);
    content.write(text);
    return [header, content];
  });
  return gzipSync(Buffer.concat([...blocks, Buffer.alloc(1024)]));
}

async function unpacked(archive: Buffer, limits?: { files: number; bytes: number }): Promise<void> {
  const file = join(dir, 'package');
  await writeFile(file, archive);
  await unpack(file, target(), limits);
}

describe('a package', () => {
  it('that the system tar has packed is unpacked as it was, with long names and executable files', async () => {
    const long = `${'a'.repeat(90)}/${'b'.repeat(90)}/${'ü'.repeat(40)}.txt`;
    for (const format of ['ustar', 'gnu', 'pax']) {
      const from = join(dir, `from-${format}`);
      const names = format === 'ustar' ? ['x/y.txt'] : ['x/y.txt', long];
      for (const name of names) {
        await mkdir(join(from, name, '..'), { recursive: true });
        await writeFile(join(from, name), `${name}\n`.repeat(100));
      }
      await writeFile(join(from, 'run'), '#!/bin/sh\n', { mode: 0o755 });
      const file = join(dir, `${format}.tar.gz`);
      execFileSync('tar', ['czf', file, `--format=${format}`, '-C', from, '.']);
      const to = join(dir, `to-${format}`);
      await unpack(file, to);
      for (const name of names) expect(await readFile(join(to, name), 'utf8')).toBe(`${name}\n`.repeat(100));
      expect((await stat(join(to, 'run'))).mode & 0o777).toBe(0o755);
      expect((await readdir(to)).sort()).toEqual((await readdir(from)).sort());
    }
  });

  it('that is no archive becomes one module', async () => {
    await unpacked(Buffer.from('console.log(1)\n'));
    expect(await entryIn(target())).toBe(join(target(), 'main.mjs'));
    expect(await readFile(join(target(), 'main.mjs'), 'utf8')).toBe('console.log(1)\n');
  });

  it('is started by what bin.errand of its package.json names, also in the folder that npm pack makes', async () => {
    const manifest = JSON.stringify({ bin: { errand: 'dist/main.js' } });
    await unpacked(tar({ name: 'package/package.json', text: manifest }, { name: 'package/dist/main.js', text: '1' }));
    expect(await entryIn(target())).toBe(join(target(), 'package/dist/main.js'));
  });

  it.each([
    ['nothing to start', [{ name: 'a.txt', text: 'a' }]],
    ['a script outside', [{ name: 'package.json', text: '{"bin":"../../evil.js"}' }]],
    ['a script that is missing', [{ name: 'package.json', text: '{"bin":"none.js"}' }]],
    ['a package.json that is none', [{ name: 'package.json', text: '[' }]],
  ])('with %s is refused', async (_what, entries) => {
    await unpacked(tar(...entries));
    await expect(entryIn(target())).rejects.toMatchObject({ code: 'invalid_request' });
  });
});

describe('a hostile package', () => {
  it.each<[string, Entry[]]>([
    ['a name with ..', [{ name: '../evil', text: 'x' }]],
    ['a name with .. further on', [{ name: 'a/../../evil', text: 'x' }]],
    ['a full path', [{ name: '/tmp/errand-evil', text: 'x' }]],
    ['a backslash', [{ name: '..\\evil', text: 'x' }]],
    ['a drive', [{ name: 'C:evil', text: 'x' }]],
    [
      'a symbolic link',
      [
        { name: 'a', type: '2', link: '/etc' },
        { name: 'a/evil', text: 'x' },
      ],
    ],
    ['a hard link', [{ name: 'a', type: '1', link: '/etc/passwd' }]],
    ['a device', [{ name: 'a', type: '3' }]],
    [
      'a long name with ..',
      [
        { name: 'x', type: 'L', text: '../evil\0' },
        { name: 'short', text: 'x' },
      ],
    ],
    [
      'a pax name with ..',
      [
        { name: 'x', type: 'x', text: '16 path=../evil\n' },
        { name: 'short', text: 'x' },
      ],
    ],
    [
      'a file twice',
      [
        { name: 'a', text: '1' },
        { name: './a', text: '2' },
      ],
    ],
  ])('with %s is refused and writes nothing outside of its folder', async (_what, entries) => {
    await expect(unpacked(tar(...entries))).rejects.toMatchObject({ code: 'invalid_request' });
    expect((await readdir(dir)).sort()).toEqual(['package', 'target']);
    await expect(stat('/tmp/errand-evil')).rejects.toThrow(/ENOENT/);
  });

  it('that unpacks to more than is allowed is refused before it is on the disk', async () => {
    const bomb = tar({ name: 'zeros', text: '\0'.repeat(3_000_000) });
    expect(bomb.length).toBeLessThan(10_000);
    await expect(unpacked(bomb, { files: 10, bytes: 1_000_000 })).rejects.toThrow('larger than 1000000 bytes');
    expect((await stat(join(target(), 'zeros'))).size).toBeLessThanOrEqual(1_000_000);
  });

  it('of too many files is refused', async () => {
    const many = tar(...Array.from({ length: 12 }, (_, i) => ({ name: `f${i}`, text: '' })));
    await expect(unpacked(many, { files: 10, bytes: 1_000 })).rejects.toThrow('more than 10 files');
  });

  it('that is cut off or altered anywhere is refused or unpacked as it was, and never leaves its folder', async () => {
    const whole = tar({ name: 'a/b', text: 'x'.repeat(700) }, { name: 'c', text: 'y' });
    let count = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.nat(whole.length - 1),
        fc.integer({ min: 1, max: 255 }),
        fc.boolean(),
        async (at, flip, cut) => {
          const bytes = Buffer.from(cut ? whole.subarray(0, at) : whole);
          if (!cut) bytes[at]! ^= flip;
          count += 1;
          const file = join(dir, `p${count}`);
          await writeFile(file, bytes);
          const to = join(dir, `t${count}`);
          await unpack(file, to).catch((error: unknown) => expect(error).toMatchObject({ code: 'invalid_request' }));
          await rm(file);
          await rm(to, { recursive: true, force: true });
          expect(await readdir(dir)).toEqual([]);
        },
      ),
      { numRuns: 100 },
    );
  });

  it('cannot write through a link that is in its folder already', async () => {
    const outside = join(dir, 'outside');
    await mkdir(outside);
    await mkdir(target());
    await symlink(join(outside, 'victim'), join(target(), 'a'));
    await expect(unpacked(tar({ name: 'a', text: 'x' }))).rejects.toThrow('twice');
    expect(await readdir(outside)).toEqual([]);
  });
});
