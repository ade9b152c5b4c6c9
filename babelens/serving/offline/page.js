// A search without a server: images and languages lie beside this page. `search.js` sets SEARCH, and the file of each
// language calls `learned` with its map. Plain scripts, because browsers refuse modules and fetches from a folder.

import { gloss, readGlossary } from "./glossary.js";
import { MOST_CHARACTERS, charactersOf, embed, glossed, unpack, unpackWords } from "./ngrams.js";
import { likelyLanguages, nameOf } from "./languages.js";
import { say, sayAll } from "./strings.js";

const PAGE = 24; // images that are shown at a time
const REMEMBERED = "babelens-language";

const element = (id) => document.getElementById(id);
const query = element("query"), language = element("language"), results = element("results"), status = element("status");

const { space, images } = SEARCH, width = space.mean.length;
const vectors = Int8Array.from(atob(SEARCH.vectors), (each) => each.charCodeAt(0));
const words = unpackWords(SEARCH, space);
const maps = new Map(); // by language, a promise of its map
const waiting = new Map(); // by language, what takes the content of its file
let shown = null; // the positions and scores that are shown, best first

// ---- Search ----

/** Called by the file of a language: its map, and if it has a glossary, the weight and the lines of that. */
function learned(tag, base64, share = 0, lines = "") {
  waiting.get(tag)({ base64, share, lines });
}

/** The embedding of a text by the map of a language and by its glossary. */
function read(text, map) {
  const direction = map.glossary && glossed(gloss(text, map.glossary), words);
  return embed(text, map, space, direction, map.share);
}

function mapOf(tag) {
  if (!maps.has(tag)) {
    const loaded = new Promise((resolve, reject) => {
      waiting.set(tag, resolve);
      const script = document.createElement("script");
      const fail = () => reject(new Error(`${script.src}: ${say("none", { of: tag })}`));
      script.src = `languages/${tag}.js`;
      script.addEventListener("error", fail);
      script.addEventListener("load", fail); // a damaged file has not called `learned` by then
      document.head.append(script);
    }).then(({ base64, share, lines }) => {
      return { ...unpack(base64, space), share, glossary: lines ? readGlossary(lines, SEARCH.words) : null };
    });
    loaded.catch(() => maps.delete(tag)); // tried again by the next search
    maps.set(tag, loaded);
  }
  return maps.get(tag);
}

/** All images as [position, cosine], best first. */
function rank(embedding) {
  const found = images.map(({ scale }, position) => {
    let sum = 0;
    for (let column = 0, place = position * width; column < width; column++, place++) sum += embedding[column] * vectors[place];
    return [position, sum * scale];
  });
  return found.sort((a, b) => b[1] - a[1]);
}

/** All images for a text in a language, as `rank` gives them. */
async function search(text, tag) {
  return rank(read(text, await mapOf(tag)));
}

/** All other images by their likeness to one, where texts can tell them apart. */
function similar(to) {
  const row = Float64Array.from(vectors.subarray(to * width, (to + 1) * width));
  const whole = Math.hypot(...row) || 1;
  return rank(row.map((value) => value / whole)).filter(([position]) => position !== to);
}

// ---- Showing ----

function card(position, score, share) {
  const { file, thumbnail, copies } = images[position], item = document.createElement("li");
  const like = document.createElement("button"), picture = document.createElement("img");
  like.type = "button";
  like.className = "picture";
  like.title = say("like");
  picture.src = thumbnail;
  picture.alt = say("likeFile", { file });
  picture.loading = "lazy";
  like.append(picture);
  like.addEventListener("click", () => askSimilar(position));
  const caption = document.createElement("div"), name = document.createElement("span");
  caption.className = "caption";
  name.className = "file";
  name.dir = "auto";
  name.textContent = copies ? say("copies", { file, n: copies + 1 }) : file;
  caption.append(name);
  if (score !== undefined) {
    const bar = document.createElement("span");
    bar.className = "score";
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", say("score", { n: score.toFixed(3) }));
    bar.style.setProperty("--share", `${share}%`);
    item.append(bar);
  }
  item.append(like, caption);
  return item;
}

function show(found, sentence, top = PAGE) {
  shown = found;
  const [best, least] = [found[0]?.[1], found[Math.min(top, found.length) - 1]?.[1]];
  results.replaceChildren(...found.slice(0, top).map(([position, score]) =>
    card(position, score, 20 + (80 * (score - least)) / (best - least || 1))));
  element("more").hidden = top >= found.length;
  status.textContent = sentence;
}

function showExample(position) {
  element("example").hidden = position === undefined;
  if (position === undefined) return;
  element("example-image").src = images[position].thumbnail;
  element("example-image").alt = images[position].file;
  element("example-text").textContent = say("images", { file: images[position].file });
}

function browse() {
  showExample();
  element("choices").hidden = true;
  show(images.map((_, position) => [position]), "");
}

function offerLanguages(text) {
  element("choices").replaceChildren(...likelyLanguages(text, SEARCH.languages).map((tag) => {
    const made = document.createElement("button");
    made.type = "button";
    made.lang = tag;
    made.textContent = nameOf(tag);
    made.addEventListener("click", () => {
      choose(tag);
      query.focus();
      ask();
    });
    return made;
  }));
  element("choices").hidden = !element("choices").children.length;
}

// ---- Asking ----

async function ask() {
  const text = query.value.trim(), tag = language.value;
  if (!text) return browse();
  if (!tag) {
    browse();
    status.textContent = say("which");
    return offerLanguages(text);
  }
  element("choices").hidden = true;
  try {
    const found = await search(text, tag);
    if (query.value.trim() !== text || language.value !== tag) return; // a later search has begun
    showExample();
    const isCut = charactersOf(text).length > MOST_CHARACTERS;
    const sentence = say("many", { of: `“${text}”`, n: found.length });
    show(found, isCut ? `${say("cut", { n: MOST_CHARACTERS })} ${sentence}` : sentence);
  } catch (error) {
    status.textContent = error.message;
  }
}

function askSimilar(position) {
  query.value = "";
  showExample(position);
  show(similar(position), say("many", { of: images[position].file, n: images.length - 1 }));
  scrollTo({ top: 0 });
}

function choose(tag) {
  language.value = tag;
  query.lang = tag;
  try {
    localStorage.setItem(REMEMBERED, tag);
  } catch {
    // a browser may keep nothing
  }
}

// The language to begin with: chosen before, the only one, or the first of the browser that is here.
function firstLanguage() {
  let kept = null;
  try {
    kept = localStorage.getItem(REMEMBERED);
  } catch {
    // a browser may keep nothing
  }
  const primary = (tag) => tag.split("-")[0];
  const mine = (navigator.languages ?? []).map((tag) => SEARCH.languages.find((each) => primary(each) === primary(tag)));
  const only = SEARCH.languages.length === 1 ? SEARCH.languages[0] : undefined;
  return [kept, only, ...mine].find((tag) => SEARCH.languages.includes(tag));
}

// ---- Start ----

sayAll();
document.title = element("title").textContent = SEARCH.title || say("title");
element("about").textContent = say("count", { n: images.length.toLocaleString(), model: SEARCH.model });
for (const tag of SEARCH.languages) {
  const made = new Option(nameOf(tag), tag);
  made.lang = tag;
  language.append(made);
}
const first = firstLanguage();
if (first) choose(first);
element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
query.addEventListener("input", (event) => event.isComposing || ask());
query.addEventListener("compositionend", ask);
language.addEventListener("change", () => {
  choose(language.value);
  ask();
});
element("clear").addEventListener("click", () => {
  query.value = "";
  browse();
  query.focus();
});
element("more").addEventListener("click", () => show(shown, status.textContent, results.children.length + PAGE));
browse();
document.body.dataset.ready = "true";
