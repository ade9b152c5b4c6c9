// The page of `babelens serve`: asks the JSON API of the server that it comes from, and no other one.

const PAGE = 24; // results that are asked for at a time
const PAUSE = 200; // milliseconds without a key, after which a query is asked
const REMEMBERED = "babelens-language";
const OTHER = "other";

const element = (id) => document.getElementById(id);
const query = element("query"), language = element("language"), other = element("other");
const results = element("results"), status = element("status"), viewer = element("viewer");

let info = null; // what `api/info` answers
let asked = null; // the search that is shown: {kind, ...}
let running = null; // the AbortController of the latest request
let shown = []; // the images that were found
let viewed = 0; // the position of the one in the viewer
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

function parts(tag) {
  try {
    return new Intl.Locale(tag).maximize();
  } catch {
    return {};
  }
}

// The language of the model that is nearest to the first of the browser's that has one: the same, or else the same in
// the same script, such as zh-Hant for zh-TW; a tag without a script may mean any.
export function nearest(wanted, known) {
  for (const tag of wanted) {
    const same = known.find((each) => each.toLowerCase() === tag.toLowerCase());
    if (same) return same;
    const mine = parts(tag);
    const kin = known.filter((each) => mine.language && parts(each).language === mine.language);
    const found = kin.find((each) => parts(each).script === mine.script) ?? (tag.includes("-") ? null : kin[0]);
    if (found) return found;
  }
  return "";
}

function fillLanguages() {
  const option = (tag) => Object.assign(new Option(nameOf(tag), tag), { lang: tag });
  language.append(...info.languages.map(option));
  if (info.takes_any_language) language.append(new Option("Another language …", OTHER));
  // Where texts do not depend on a language that is stated, nobody is asked.
  language.hidden = !info.needs_language;
  if (info.needs_language) language.options[0].text = "Language not stated";
}

function kept() {
  try {
    return localStorage.getItem(REMEMBERED);
  } catch {
    return null; // a browser may keep nothing
  }
}

function firstLanguage(given) {
  if (given) return given;
  if (!info.needs_language) return "";
  const mine = kept();
  const own = mine && (info.takes_any_language || info.languages.includes(mine)) ? mine : "";
  return own || info.language || nearest(navigator.languages ?? [], info.languages);
}

function chooseLanguage(tag) {
  if ([...language.options].some((option) => option.value === tag)) language.value = tag;
  else if (info.takes_any_language) {
    language.value = OTHER;
    other.value = tag;
  }
  showOther();
}

function showOther() {
  other.hidden = language.value !== OTHER;
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
  if (search.kind === "browse") return [`api/images?top=${top}`, {}];
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
  status.textContent = search.kind === "browse" ? "" : "Searching …";
  remember(search);
  showExample(search);
  try {
    const [address, options] = request(search, top);
    const found = await answer(address, { ...options, signal: mine.signal });
    if (running === mine) show(found, search, top);
  } catch (error) {
    if (running !== mine || error.name === "AbortError") return;
    clearResults();
    showProblem(error.message);
  } finally {
    if (running === mine) results.removeAttribute("aria-busy");
  }
}

function askText() {
  const q = query.value.trim();
  if (q) ask({ kind: "text", q, language: chosenLanguage() });
  else if (asked?.kind === "text" || !asked) browse();
}

function askSoon(event) {
  if (event?.isComposing) return; // a word of a Chinese or Japanese keyboard is not complete yet
  clearTimeout(timer);
  timer = setTimeout(askText, PAUSE);
}

function askImage(file) {
  if (!info) return; // the server has not answered, which the page says
  stop();
  if (!file.type.startsWith("image/") && !/\.(heic|heif)$/i.test(file.name)) return showProblem("This file is not an image.");
  if (file.size > info.upload_bytes) {
    return showProblem(`The image is too large: ${Math.floor(info.upload_bytes / 2 ** 20)} MiB are allowed.`);
  }
  query.value = "";
  ask({ kind: "image", file });
}

// ---- Showing ----

function show(found, search, top) {
  shown = found.results;
  results.replaceChildren(...shown.map(card));
  makeReachable(0);
  if (search.kind !== "browse") {
    const of = { text: () => `“${search.q}”`, image: () => "the image", similar: () => search.file }[search.kind]();
    const count = shown.length ? `Best ${shown.length} of ${info.images.toLocaleString("en")} for ${of}` : `No image for ${of}`;
    const readAs = search.kind === "text" && !search.language && found.language ? `, read as ${nameOf(found.language)}` : "";
    status.textContent = count + readAs;
  }
  element("more").hidden = shown.length < top || top >= Math.min(info.top, info.images - (search.kind === "similar"));
}

// A picture is a button that opens it large. Its name shows on hover and focus.
function card(image, index) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "picture";
  const picture = document.createElement("img");
  picture.src = image.thumbnail;
  picture.alt = image.file;
  picture.loading = index < 12 ? "eager" : "lazy";
  picture.decoding = "async";
  button.append(picture);
  button.addEventListener("click", () => view(index));
  const file = document.createElement("span");
  file.className = "file";
  file.dir = "auto";
  file.textContent = named(image);
  file.setAttribute("aria-hidden", "true");
  item.append(button, file);
  return item;
}

const named = (image) => (image.copies ? `${image.file} (${image.copies + 1} files)` : image.file);

function view(index) {
  const image = shown[index];
  if (!image) return;
  viewed = index;
  element("viewer-image").src = `${image.thumbnail}?size=large`;
  element("viewer-image").alt = image.file;
  element("viewer-name").textContent = named(image);
  element("original").href = image.image;
  if (!viewer.open) viewer.showModal();
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
  shown = [];
  results.replaceChildren();
  status.textContent = "";
  element("more").hidden = true;
}

function showProblem(sentence) {
  element("problem").textContent = sentence;
  element("trouble").hidden = !sentence;
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
  const named = new URLSearchParams();
  if (search?.kind === "text") named.set("q", search.q);
  if (search?.language) named.set("language", search.language);
  if (search?.kind === "similar") named.set("like", search.id);
  history.replaceState(null, "", named.size ? `?${named}` : location.pathname);
}

// ---- Keys ----

// Tab stops at one result alone; arrow keys move to the others.
function makeReachable(position) {
  [...results.children].forEach((item, index) => (item.querySelector("button").tabIndex = index === position ? 0 : -1));
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

results.addEventListener("keydown", (event) => {
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
});
viewer.addEventListener("keydown", (event) => {
  if (event.key === "ArrowRight") view(viewed + 1);
  if (event.key === "ArrowLeft") view(viewed - 1);
});
viewer.addEventListener("close", () => focusResult(viewed));
viewer.addEventListener("click", (event) => event.target === viewer && viewer.close()); // outside of it
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.isComposing && !viewer.open) {
    event.preventDefault();
    clearAll();
  }
});

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
function changeLanguage() {
  showOther();
  try {
    localStorage.setItem(REMEMBERED, chosenLanguage());
  } catch {
    // a browser may keep nothing
  }
  if (query.value.trim() && (language.value !== OTHER || other.value.trim())) askText();
}
language.addEventListener("change", () => {
  changeLanguage();
  if (language.value === OTHER) other.focus();
});
other.addEventListener("change", changeLanguage);
element("clear").addEventListener("click", clearAll);
element("close").addEventListener("click", () => viewer.close());
element("similar").addEventListener("click", () => {
  const { id, file } = shown[viewed];
  viewer.close();
  query.value = "";
  ask({ kind: "similar", id, file });
  scrollTo({ top: 0 });
});
element("retry").addEventListener("click", () => (info ? (query.value.trim() ? askText() : browse()) : start()));
element("more").addEventListener("click", async () => {
  const before = shown.length;
  await ask(asked, Math.min(info.top, before + PAGE));
  focusResult(before);
});
element("file").addEventListener("change", (event) => {
  const [file] = event.target.files;
  if (file) askImage(file);
  event.target.value = ""; // or the same file, chosen again after another search, would be no change
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
document.addEventListener("dragover", (event) => isFile(event) && event.preventDefault());
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
  showProblem("");
  status.textContent = "Loading …";
  try {
    info = await answer("api/info");
  } catch (error) {
    showProblem(error.message);
    return;
  }
  status.textContent = "";
  element("about").textContent = `${info.images.toLocaleString("en")} images, searched with ${info.model}`;
  query.maxLength = info.query_characters;
  fillLanguages();
  const given = new URLSearchParams(location.search);
  chooseLanguage(firstLanguage(given.get("language")));
  if (given.has("like")) ask({ kind: "similar", id: given.get("like"), file: "an image of the folder" });
  else if (given.has("q")) {
    query.value = given.get("q");
    askText();
  } else if (query.value) askText(); // typed while the page was loading
  else browse();
  document.body.dataset.ready = "true";
}

start();
