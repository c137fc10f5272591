// Bundle the libraries of the console: `make editor` runs it, and what it writes is committed. Nothing is built at run time.
//
// To take newer versions: change package.json, `npm install --package-lock-only --omit-lockfile-registry-resolved`
// in this folder, `make editor`, and the tests of tests/console.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const VENDOR = "../../src/turnout/console/static/vendor/";

/** Write the bundle of an entry point, and the licences of the packages in it. */
async function bundle(entry, title) {
  const { metafile, outputFiles } = await build({
    entryPoints: [`${entry}.js`], bundle: true, minify: true, format: "esm", target: "es2022", legalComments: "none", metafile: true, write: false,
  });
  const folders = Object.keys(metafile.inputs).map((file) => file.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[0]);
  const packages = [...new Set(folders.filter(Boolean))].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(`${folder}package.json`, "utf8"));
    return { name, version, license, text: readFileSync(`${folder}LICENSE`, "utf8").trim() };
  });
  const names = packages.map(({ name, version }) => `${name} ${version}`);
  writeFileSync(`${VENDOR}${entry}.js`, `/* ${title}, bundled by make editor; licences: ${entry}.LICENSE.txt\n${names.join("\n")} */\n${outputFiles[0].text}`);
  const licences = packages.map(({ name, version, license, text }) => `${name} ${version} (${license})\n\n${text}\n`);
  writeFileSync(`${VENDOR}${entry}.LICENSE.txt`, licences.join(`\n${"-".repeat(80)}\n\n`));
  console.log(`${names.join("\n")}\n${outputFiles[0].contents.length} bytes`);
}

await bundle("codemirror", "CodeMirror");
await bundle("uplot", "uPlot");
// Its style sheet goes beside it: a page of the console has no style sheets in scripts.
writeFileSync(`${VENDOR}uplot.css`, readFileSync("node_modules/uplot/dist/uPlot.min.css", "utf8"));
// The tests of the console run it in their pages; the licence is at its head.
mkdirSync("../../tests/console/vendor", { recursive: true });
writeFileSync("../../tests/console/vendor/axe.min.js", readFileSync("node_modules/axe-core/axe.min.js", "utf8"));
