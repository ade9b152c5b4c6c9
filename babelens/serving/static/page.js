// The page of `babelens serve`: asks the JSON API of the server that it comes from, and no other one.

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

function nameOf(tag) {
  try {
    const name = new Intl.DisplayNames([tag], { type: "language", fallback: "none" }).of(tag);
    return name ? `${name} (${tag})` : tag;
  } catch {
    return tag;
  }
}

function isStated(tag) {
  const primary = (each) => each.toLowerCase().split(/[-_]/)[0];
  return !info.takes_any_language || info.languages.map(primary).includes(primary(tag));
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
  group("Languages of the model", info.languages);
  if (info.takes_any_language) {
    const mine = [...new Set(navigator.languages ?? [])].filter((tag) => !info.languages.includes(tag));
    group("Languages of this browser", mine);
    language.append(new Option("Another language …", OTHER));
  }
  if (!info.needs_language) language.options[0].text = "Any language";
  if (info.languages.length === 1 && !info.takes_any_language) language.value = info.languages[0];
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
    throw new Error("The server does not answer. Is it still running?");
  }
  const content = await response.json().catch(() => null);
  if (!response.ok) throw new Error(content?.error ?? `The server answered with status ${response.status}.`);
  return content;
}

function request(search, top) {
  if (search.kind === "image") {
    const form = new FormData();
    form.append("file", search.file, search.file.name || "pasted image");
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
  status.textContent = "Searching …";
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
    if (asked?.kind === "text" || !asked) stop();
    return;
  }
  if (!tag && (info.needs_language || language.value === OTHER)) {
    stop();
    status.textContent = "Choose the language of the description: it is never guessed.";
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
  if (!file.type.startsWith("image/")) return refuse("This file is not an image.");
  if (file.size > info.upload_bytes) {
    return refuse(`The image is too large: ${Math.floor(info.upload_bytes / 2 ** 20)} MiB are allowed.`);
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
  results.replaceChildren(...found.map(card));
  makeReachable(0);
  const count = found.length === 1 ? "1 image" : `${found.length} images`;
  const of = { text: () => `“${search.q}”`, image: () => "the image", similar: () => search.file }[search.kind]();
  status.textContent = found.length ? `${count} for ${of}, best first` : `No image for ${of}`;
  if (search.language && !isStated(search.language)) {
    status.textContent += `. The model does not state that it reads ${nameOf(search.language)}: the results may mean nothing.`;
  }
  status.dir = "auto";
  const most = Math.min(info.top, search.kind === "similar" ? info.images - 1 : info.images);
  element("more").hidden = found.length < top || top >= most;
}

function card(image, index) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = image.image;
  link.target = "_blank";
  link.rel = "noopener";
  const picture = document.createElement("img");
  picture.src = image.thumbnail;
  picture.alt = image.file;
  picture.loading = index < 12 ? "eager" : "lazy";
  picture.decoding = "async";
  picture.addEventListener("error", () => picture.removeAttribute("src"), { once: true });
  link.append(picture);
  const caption = document.createElement("div");
  caption.className = "caption";
  const file = document.createElement("span");
  file.className = "file";
  file.dir = "auto";
  file.textContent = image.copies ? `${image.file} (${image.copies + 1} files)` : image.file;
  const score = document.createElement("span");
  score.className = "score";
  score.textContent = `score ${image.score.toFixed(3)}`;
  const more = document.createElement("button");
  more.type = "button";
  more.textContent = "More like this";
  more.setAttribute("aria-label", `More like ${image.file}`);
  more.addEventListener("click", () => {
    query.value = "";
    ask({ kind: "similar", id: image.id, file: image.file });
    query.focus();
  });
  caption.append(file, score, more);
  item.append(link, caption);
  return item;
}

function showExample(search) {
  const picture = element("example-image"), box = element("example");
  if (picture.src.startsWith("blob:")) URL.revokeObjectURL(picture.src);
  picture.removeAttribute("src");
  box.hidden = search?.kind !== "image" && search?.kind !== "similar";
  if (box.hidden) return;
  const name = search.kind === "image" ? search.file.name || "pasted image" : search.file;
  picture.src = search.kind === "image" ? URL.createObjectURL(search.file) : `thumbnails/${encodeURIComponent(search.id)}`;
  picture.alt = name;
  element("example-text").textContent = `Images like ${name}`;
}

function clearResults() {
  results.replaceChildren();
  status.textContent = "";
  element("more").hidden = true;
}

function showProblem(sentence) {
  problem.textContent = sentence;
  problem.hidden = !sentence;
  if (sentence) status.textContent = "";
}

// Ends the search that runs, and shows none.
function stop() {
  clearTimeout(timer);
  running?.abort();
  running = asked = null;
  results.removeAttribute("aria-busy");
  clearResults();
  showProblem("");
  showExample(null);
  remember(null);
}

function clearAll() {
  query.value = "";
  stop();
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
  item.querySelector("a").focus();
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
  if (isFile(event)) element("drop").hidden = ++inside <= 0;
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
  status.textContent = "Loading …";
  try {
    info = await answer("api/info");
  } catch (error) {
    showProblem(error.message);
    return;
  }
  status.textContent = "";
  const count = info.images === 1 ? "1 image" : `${info.images.toLocaleString("en")} images`;
  element("about").textContent = `${count}, searched with ${info.model}`;
  query.maxLength = info.query_characters;
  fillLanguages();
  const given = new URLSearchParams(location.search);
  let remembered = null;
  try {
    remembered = localStorage.getItem(REMEMBERED);
  } catch {
    // a browser may keep nothing
  }
  chooseLanguage(given.get("language") ?? remembered);
  if (given.has("like")) ask({ kind: "similar", id: given.get("like"), file: "an image of the folder" });
  else if (given.has("q")) {
    query.value = given.get("q");
    askText();
  } else if (query.value) askText(); // typed while the page was loading
  document.body.dataset.ready = "true";
}

start();
