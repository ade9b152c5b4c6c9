// Classifies images with an exported folder by a pipeline of transformers.js: the scores that a test compares.
//
//     node classify.mjs PACKAGE FOLDER < request.json
//
// `request.json` has the name of an exported folder in FOLDER, paths of `images`, `labels` and `dtype`.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [packageFolder, folder] = process.argv.slice(2);
const { exports: entries } = JSON.parse(readFileSync(`${packageFolder}/package.json`, "utf8"));
const { pipeline, env } = await import(pathToFileURL(`${packageFolder}/${entries.node.import.default}`));
env.allowRemoteModels = false;
env.localModelPath = folder;

const { name, images, labels, dtype } = JSON.parse(readFileSync(0, "utf8"));
const classify = await pipeline("zero-shot-image-classification", name, { dtype });
const found = await classify(images, labels, { hypothesis_template: "{}" });
const embed = await pipeline("image-feature-extraction", name, { dtype, model_file_name: "vision_model" });
const embeddings = await embed(images);
console.log(JSON.stringify({ scores: found.map((each) => Object.fromEntries(each.map((e) => [e.label, e.score]))), image: embeddings.tolist() }));
