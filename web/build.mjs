// Builds the dashboard into the crate that serves it. `--check` compares instead of writing: what is committed has to
// be what the sources give. Brotli's output differs between versions of Node, so its content is compared.
import { build } from "esbuild";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, brotliDecompressSync, constants, gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const to = join(here, "../crates/longhaul-server/assets");
const check = process.argv.includes("--check");
const LIMITS = { "app.js": 60_000, "app.css": 12_000 };

const built = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  outdir: to,
  write: false,
  charset: "utf8",
  legalComments: "none",
  define: { "process.env.NODE_ENV": '"production"' },
});
const files = new Map(built.outputFiles.map((file) => [file.path.split("/").pop(), Buffer.from(file.contents)]));
// What is in the bundle wants to be named with it.
const PACKAGES = ["preact", "@preact/signals", "@preact/signals-core", "marked"];
const licence = (name) => {
  const dir = join(here, "node_modules", name);
  const file = readdirSync(dir).find((file) => /^licen[cs]e/i.test(file));
  return `${name}\n\n${readFileSync(join(dir, file), "utf8").trim()}\n`;
};
files.set("LICENCES.txt", Buffer.from(PACKAGES.map(licence).join("\n----\n\n")));
for (const name of ["index.html", "icon.svg"]) files.set(name, readFileSync(join(here, "src", name)));

let wrong = 0;
const fail = (text) => {
  console.error(`error: ${text}`);
  wrong += 1;
};
if (!check) mkdirSync(to, { recursive: true });
for (const [name, bytes] of files) {
  const path = join(to, name);
  const compressed = name in LIMITS;
  if (check) {
    const same = (read) => {
      try {
        return read().equals(bytes);
      } catch {
        return false;
      }
    };
    if (!same(() => readFileSync(path))) fail(`assets/${name} is not what web/src gives: run \`npm run build\` in web/`);
    if (compressed && !same(() => brotliDecompressSync(readFileSync(`${path}.br`)))) fail(`assets/${name}.br is stale`);
  } else {
    writeFileSync(path, bytes);
    const params = { [constants.BROTLI_PARAM_QUALITY]: 11 };
    if (compressed) writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params }));
  }
  const size = gzipSync(bytes, { level: 9 }).length;
  console.log(`${name}: ${bytes.length} bytes, ${size} gzipped`);
  if (compressed && size > LIMITS[name]) fail(`${name} has ${size} bytes gzipped; ${LIMITS[name]} is the limit`);
}
process.exit(wrong ? 1 : 0);
