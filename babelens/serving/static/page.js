// The page of `babelens serve`: asks the JSON API of the server that it comes from, and no other one.

import { likelyLanguages, nameOf } from "./languages.js";
import { say, sayAll } from "./strings.js";

const PAGE = 24; // results that are asked for at a time
const PAUSE = 200; // milliseconds without a key, after which a query is asked
const REMEMBERED = "babelens-language";
const OTHER = "other";

const element = (id) => document.getElementById(id);
const query = element("query"), language = element("language"), other = element("other");
const results = element("results"), status = element("status"), problem = element("problem");

let info = null; // what `api/info` answers
let asked = null; // the search that is shown: {kind, ...}
let running = null; // the AbortController of the latest request
let timer = 0;

// ---- Languages ----

function isStated(tag) {
  const primary = (each) => each.toLowerCase().split(/[-_]/)[0];
  return !info.needs_language || !info.takes_any_language || info.languages.map(primary).includes(primary(tag));
}

function fillLanguages() {
  const option = (tag) => {
    const made = new Option(nameOf(tag), tag);
    made.lang = tag;
    return made;
  };
  const group = (label, tags) => {
    const made = document.createElement("optgroup");
    made.label = label;
    made.append(...tags.map(option));
    if (tags.length) language.append(made);
  };
  group(say("model"), info.languages);
  if (info.takes_any_language) {
    const mine = [...new Set(navigator.languages ?? [])].filter((tag) => !info.languages.includes(tag));
    group(say("browser"), mine);
    language.append(new Option(say("another"), OTHER));
  }
  if (!info.needs_language) language.options[0].text = say("any");
  const alone = info.languages.length === 1 && !info.takes_any_language;
  if (alone) language.value = info.languages[0];
  // Where texts do not depend on a language that is stated, or there is no choice, nobody is asked.
  element("language-field").hidden = alone || !info.needs_language;
}

// The language to begin with: of the address, chosen before, of the server, or the first of the browser that the model states.
function firstLanguage(given) {
  let kept = null;
  try {
    kept = localStorage.getItem(REMEMBERED);
  } catch {
    // a browser may keep nothing
  }
  const stated = (tag) => tag && (info.takes_any_language || info.languages.includes(tag));
  return given ?? (stated(kept) ? kept : null) ?? info.default_language;
}

function offerLanguages(text) {
  const box = element("choices");
  box.replaceChildren(...likelyLanguages(text, info.languages).map((tag) => {
    const made = document.createElement("button");
    made.type = "button";
    made.lang = tag;
    made.textContent = nameOf(tag);
    made.addEventListener("click", () => {
      chooseLanguage(tag);
      query.focus();
      askText();
    });
    return made;
  }));
  box.hidden = !box.children.length;
}

function chooseLanguage(tag) {
  if (!tag) return;
  const listed = [...language.options].some((option) => option.value === tag);
  if (listed) language.value = tag;
  else if (info.takes_any_language) {
    language.value = OTHER;
    other.value = tag;
  }
  showOther();
}

function showOther() {
  element("other-field").hidden = language.value !== OTHER;
  query.lang = chosenLanguage();
}

const chosenLanguage = () => (language.value === OTHER ? other.value.trim() : language.value);

// ---- Asking ----

async function answer(address, options = {}) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error(say("gone"));
  }
  const content = await response.json().catch(() => null);
  if (!response.ok) throw new Error(content?.error ?? say("status", { n: response.status }));
  return content;
}

function request(search, top) {
  if (search.kind === "browse") return [`api/images?top=${top}`, {}];
  if (search.kind === "image") {
    const form = new FormData();
    form.append("file", search.file, search.file.name || say("pasted"));
    return [`api/search-by-image?top=${top}`, { method: "POST", body: form }];
  }
  if (search.kind === "similar") return [`api/similar/${encodeURIComponent(search.id)}?top=${top}`, {}];
  const stated = search.language ? { language: search.language } : {};
  return [`api/search?${new URLSearchParams({ q: search.q, ...stated, top })}`, {}];
}

// Asks, and shows the answer unless a later search has begun meanwhile.
async function ask(search, top = PAGE) {
  clearTimeout(timer);
  running?.abort();
  const mine = (running = new AbortController());
  asked = search;
  results.setAttribute("aria-busy", "true");
  showProblem("");
  element("choices").hidden = true;
  status.textContent = search.kind === "browse" ? "" : say("searching");
  if (!results.children.length) showPlaces();
  remember(search);
  showExample(search);
  try {
    const [address, options] = request(search, top);
    const found = await answer(address, { ...options, signal: mine.signal });
    if (running !== mine) return;
    show(found.results, search, top);
  } catch (error) {
    if (running !== mine || error.name === "AbortError") return;
    clearResults();
    showProblem(error.message);
  } finally {
    if (running === mine) results.removeAttribute("aria-busy");
  }
}

function askText() {
  const q = query.value.trim(), tag = chosenLanguage();
  if (!q) {
    if (asked?.kind === "text" || !asked) browse();
    return;
  }
  if (!tag && (info.needs_language || language.value === OTHER)) {
    if (asked?.kind !== "browse") browse();
    status.textContent = say("which");
    offerLanguages(q);
    return;
  }
  ask({ kind: "text", q, language: tag });
}

function askSoon(event) {
  if (event?.isComposing) return; // a word of a Chinese or Japanese keyboard is not complete yet
  clearTimeout(timer);
  timer = setTimeout(askText, PAUSE);
}

function askImage(file) {
  if (!info) return; // the server has not answered, which the page says
  if (!file.type.startsWith("image/")) return refuse(say("noImage"));
  if (file.size > info.upload_bytes) {
    return refuse(say("tooLarge", { n: Math.floor(info.upload_bytes / 2 ** 20) }));
  }
  query.value = "";
  ask({ kind: "image", file });
}

function refuse(sentence) {
  stop();
  showProblem(sentence);
}

// ---- Showing ----

function show(found, search, top) {
  const scores = found.map((image) => image.score ?? 0);
  const scale = [Math.min(...scores), Math.max(...scores)];
  results.replaceChildren(...found.map((image, index) => card(image, index, scale)));
  makeReachable(0);
  if (search.kind !== "browse") {
    const of = { text: () => `“${search.q}”`, image: () => say("theImage"), similar: () => search.file }[search.kind]();
    status.textContent = say(["none", "one"][found.length] ?? "many", { of, n: found.length });
  }
  if (search.language && !isStated(search.language)) {
    status.textContent += `. ${say("unstated", { language: nameOf(search.language) })}`;
  }
  status.dir = "auto";
  const most = Math.min(info.top, search.kind === "similar" ? info.images - 1 : info.images);
  element("more").hidden = found.length < top || top >= most;
}

// Grey squares where images will be, until the first answer.
function showPlaces() {
  results.replaceChildren(...Array.from({ length: Math.min(12, info.images) }, () => {
    const item = document.createElement("li");
    item.className = "place";
    return item;
  }));
}

// A picture is a button for more like it. Its name, its score and a link to the file show on hover and focus.
function card(image, index, [least, best]) {
  const item = document.createElement("li");
  const like = document.createElement("button");
  like.type = "button";
  like.className = "picture";
  like.title = say("like");
  const picture = document.createElement("img");
  picture.src = image.thumbnail;
  picture.alt = say("likeFile", { file: image.file });
  picture.loading = index < 12 ? "eager" : "lazy";
  picture.decoding = "async";
  picture.addEventListener("error", () => picture.removeAttribute("src"), { once: true });
  like.append(picture);
  like.addEventListener("click", () => {
    query.value = "";
    ask({ kind: "similar", id: image.id, file: image.file });
    scrollTo({ top: 0 });
    query.focus({ preventScroll: true });
  });
  const caption = document.createElement("div");
  caption.className = "caption";
  const file = document.createElement("a");
  file.className = "file";
  file.dir = "auto";
  file.href = image.image;
  file.target = "_blank";
  file.rel = "noopener";
  file.setAttribute("aria-label", say("open", { file: image.file }));
  file.textContent = image.copies ? say("copies", { file: image.file, n: image.copies + 1 }) : image.file;
  caption.append(file);
  if (image.score !== undefined) {
    const bar = document.createElement("span");
    bar.className = "score";
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", say("score", { n: image.score.toFixed(3) }));
    bar.title = say("score", { n: image.score.toFixed(3) });
    // From the least that is shown, a fifth of the width, to the best, all of it.
    bar.style.setProperty("--share", `${20 + (80 * (image.score - least)) / (best - least || 1)}%`);
    item.append(bar);
  }
  item.append(like, caption);
  return item;
}

function showExample(search) {
  const picture = element("example-image"), box = element("example");
  if (picture.src.startsWith("blob:")) URL.revokeObjectURL(picture.src);
  picture.removeAttribute("src");
  box.hidden = search?.kind !== "image" && search?.kind !== "similar";
  if (box.hidden) return;
  const name = search.kind === "image" ? search.file.name || say("pasted") : search.file;
  picture.src = search.kind === "image" ? URL.createObjectURL(search.file) : `thumbnails/${encodeURIComponent(search.id)}`;
  picture.alt = name;
  element("example-text").textContent = say("images", { file: name });
}

function clearResults() {
  results.replaceChildren();
  status.textContent = "";
  element("more").hidden = true;
}

function showProblem(sentence) {
  problem.textContent = sentence;
  problem.hidden = element("trouble").hidden = !sentence;
  if (sentence) status.textContent = "";
}

// Ends the search that runs, and shows none.
function stop() {
  clearTimeout(timer);
  running?.abort();
  running = asked = null;
  results.removeAttribute("aria-busy");
  clearResults();
  element("choices").hidden = true;
  showProblem("");
  showExample(null);
  remember(null);
}

// Without a search, there are pictures of the folder to look at.
function browse() {
  stop();
  if (info) ask({ kind: "browse" });
}

function clearAll() {
  query.value = "";
  browse();
  query.focus();
}

// The address names the search, so that it can be kept as a bookmark; an uploaded image has no address.
function remember(search) {
  const kept = new URLSearchParams();
  if (search?.kind === "text") kept.set("q", search.q);
  if (search?.language) kept.set("language", search.language);
  if (search?.kind === "similar") kept.set("like", search.id);
  const address = kept.size ? `?${kept}` : location.pathname;
  history.replaceState(null, "", address);
  const tag = chosenLanguage();
  try {
    if (tag) localStorage.setItem(REMEMBERED, tag);
  } catch {
    // a browser may keep nothing
  }
}

// ---- Keys ----

// Tab stops at one result alone, and at its button; arrow keys move to the others.
function makeReachable(position) {
  [...results.children].forEach((item, index) => {
    for (const each of item.querySelectorAll("a, button")) each.tabIndex = index === position ? 0 : -1;
  });
}

function focusResult(position) {
  const item = results.children[position];
  if (!item) return;
  makeReachable(position);
  item.querySelector("button").focus();
}

function columns() {
  const tops = [...results.children].map((item) => item.offsetTop);
  return tops.filter((top) => top === tops[0]).length || 1;
}

function moveInResults(event) {
  const here = [...results.children].indexOf(event.target.closest("li"));
  const last = results.children.length - 1;
  const moves = {
    ArrowRight: here + 1,
    ArrowLeft: here - 1,
    ArrowDown: here + columns(),
    ArrowUp: here - columns(),
    Home: 0,
    End: last,
  };
  if (here < 0 || !(event.key in moves) || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  const target = moves[event.key];
  if (target < 0 && event.key === "ArrowUp") query.focus();
  else focusResult(Math.max(0, Math.min(last, target)));
}

// ---- Events ----

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  askText();
});
query.addEventListener("input", askSoon);
query.addEventListener("compositionend", askSoon);
query.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" && results.children.length) {
    event.preventDefault();
    focusResult(0);
  }
});
language.addEventListener("change", () => {
  showOther();
  if (language.value === OTHER) other.focus();
  if (query.value.trim()) askText();
});
other.addEventListener("change", () => {
  showOther();
  askText();
});
results.addEventListener("keydown", moveInResults);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.isComposing) {
    event.preventDefault();
    clearAll();
  }
});
element("clear").addEventListener("click", clearAll);
element("retry").addEventListener("click", () => (info ? (query.value.trim() ? askText() : browse()) : start()));
// The field of the tag reacts as one types, once what is typed can be a tag.
other.addEventListener("input", () => {
  clearTimeout(timer);
  if (/^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$/.test(other.value.trim())) timer = setTimeout(askText, 2 * PAUSE);
});
element("more").addEventListener("click", async () => {
  const shown = results.children.length;
  await ask(asked, Math.min(info.top, shown + PAGE));
  focusResult(shown);
});
element("file").addEventListener("change", (event) => {
  const [file] = event.target.files;
  event.target.value = ""; // or the same file, chosen again after another search, would be no change
  if (file) askImage(file);
});
document.addEventListener("paste", (event) => {
  const file = [...(event.clipboardData?.files ?? [])].find((each) => each.type.startsWith("image/"));
  if (file) {
    event.preventDefault();
    askImage(file);
  }
});

let inside = 0; // elements of the page that a dragged file has entered and not left
const isFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
document.addEventListener("dragenter", (event) => {
  if (!isFile(event)) return;
  event.preventDefault(); // or a drop before the next "dragover" opens the file in the place of the page
  element("drop").hidden = ++inside <= 0;
});
document.addEventListener("dragleave", (event) => {
  if (isFile(event)) element("drop").hidden = --inside <= 0;
});
document.addEventListener("dragover", (event) => {
  if (isFile(event)) event.preventDefault();
});
document.addEventListener("drop", (event) => {
  if (!isFile(event)) return;
  event.preventDefault();
  inside = 0;
  element("drop").hidden = true;
  const [file] = event.dataTransfer.files;
  if (file) askImage(file);
});

// ---- Start ----

async function start() {
  sayAll();
  showProblem("");
  status.textContent = say("loading");
  try {
    info = await answer("api/info");
  } catch (error) {
    showProblem(error.message);
    return;
  }
  status.textContent = "";
  document.title = element("title").textContent = info.title ?? say("title");
  element("about").textContent = say("count", { n: info.images.toLocaleString(), model: info.model });
  query.maxLength = info.query_characters;
  fillLanguages();
  const given = new URLSearchParams(location.search);
  chooseLanguage(firstLanguage(given.get("language")));
  if (given.has("like")) ask({ kind: "similar", id: given.get("like"), file: say("anImage") });
  else if (given.has("q")) {
    query.value = given.get("q");
    askText();
  } else if (query.value) askText(); // typed while the page was loading
  else browse();
  document.body.dataset.ready = "true";
}

start();
