// Bundle CodeMirror for the console: `make editor` runs it, and what it writes is committed. Nothing is built at run time.
//
// To take newer versions: change package.json, `npm install --package-lock-only --omit-lockfile-registry-resolved`
// in this folder, `make editor`, and the tests of tests/console/test_editor.py.

import { readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const OUT = "../../src/turnout/console/static/vendor/codemirror";

const bundle = {
  entryPoints: ["codemirror.js"], bundle: true, minify: true, format: "esm", target: "es2022", legalComments: "none", metafile: true, write: false,
};
const { metafile, outputFiles } = await build(bundle);

const folders = Object.keys(metafile.inputs).map((file) => file.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[0]);
const packages = [...new Set(folders.filter(Boolean))].sort().map((folder) => {
  const { name, version, license } = JSON.parse(readFileSync(`${folder}package.json`, "utf8"));
  return { name, version, license, text: readFileSync(`${folder}LICENSE`, "utf8").trim() };
});
const names = packages.map(({ name, version }) => `${name} ${version}`);
writeFileSync(`${OUT}.js`, `/* CodeMirror, bundled by make editor; licences: codemirror.LICENSE.txt\n${names.join("\n")} */\n${outputFiles[0].text}`);
const licences = packages.map(({ name, version, license, text }) => `${name} ${version} (${license})\n\n${text}\n`);
writeFileSync(`${OUT}.LICENSE.txt`, licences.join(`\n${"-".repeat(80)}\n\n`));
console.log(`${names.join("\n")}\n${outputFiles[0].contents.length} bytes`);
