// Encodes texts and images with an exported folder, by transformers.js: the embeddings that a test compares.
//
//     node encode.mjs PACKAGE FOLDER < request.json
//
// PACKAGE is the folder of an installed @huggingface/transformers, FOLDER holds the exported folders; `request.json` has
// the name of one, `dtype`, `texts`, `padding`, `max_length` and paths of `images`, and optionally the subfolder of a
// `tokenizer` and the `language_ids` of the texts.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [packageFolder, folder] = process.argv.slice(2);
const { exports: entries } = JSON.parse(readFileSync(`${packageFolder}/package.json`, "utf8"));
const entry = entries.node.import.default;
const {
  AutoProcessor, AutoTokenizer, CLIPTextModelWithProjection, CLIPVisionModelWithProjection, RawImage, Tensor, env,
} = await import(pathToFileURL(`${packageFolder}/${entry}`));
env.allowRemoteModels = false;
env.localModelPath = folder;

const { name, dtype, texts, images, tokenizer, language_ids, padding, max_length } = JSON.parse(readFileSync(0, "utf8"));
const tokenize = await AutoTokenizer.from_pretrained(tokenizer ? `${name}/${tokenizer}` : name);
const textModel = await CLIPTextModelWithProjection.from_pretrained(name, { dtype });
const inputs = tokenize(texts, { padding, truncation: true, max_length });
if (language_ids) inputs.language_ids = new Tensor("int64", BigInt64Array.from(language_ids.map(BigInt)), [texts.length]);
const { text_embeds } = await textModel(inputs);

const prepare = await AutoProcessor.from_pretrained(name);
const visionModel = await CLIPVisionModelWithProjection.from_pretrained(name, { dtype });
const read = await Promise.all(images.map((path) => RawImage.read(path)));
const { image_embeds } = await visionModel(await prepare(read));
console.log(JSON.stringify({ text: text_embeds.tolist(), image: image_embeds.tolist() }));
