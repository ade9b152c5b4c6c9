// Translates texts word by word, to the last character as `processing/glossary.py` does.

const APOSTROPHES = "'’ʻʼ`ꞌ-";
const JOINED = [ // scripts that put no space between words
  [0x0e00, 0x0eff], [0x1000, 0x109f], [0x1780, 0x17ff], [0x1950, 0x19ff], [0x1a20, 0x1aaf], [0x1b00, 0x1b7f],
  [0x3040, 0x30ff], [0x3400, 0x9fff], [0xa980, 0xa9ff], [0xaa60, 0xaadf], [0xf900, 0xfaff], [0x20000, 0x3ffff],
];
const ALIKE = 0.5, UNKNOWN = 8, LONGEST_PIECE = 12, MOST_WORDS = 40, MOST_READ = 4096;

function isJoined(character) {
  const code = character.codePointAt(0);
  return JOINED.some(([first, last]) => first <= code && code <= last);
}

/** The words of a text in lower case and compatible form; a run in a script without spaces is one word. */
export function wordsOf(text) {
  const words = [];
  let word = [];
  for (const character of `${text.normalize("NFKC").toLowerCase()} `) {
    const isLetter = /[\p{L}\p{M}\p{N}]/u.test(character);
    if (isLetter || (APOSTROPHES.includes(character) && word.length)) {
      if (isLetter && word.length && isJoined(character) !== isJoined(word[0])) {
        words.push(word);
        word = [];
      }
      word.push(character);
    } else if (word.length) {
      words.push(word);
      word = [];
    }
  }
  return words.map((each) => each.slice(0, each.findLastIndex((one) => !APOSTROPHES.includes(one)) + 1))
    .filter((each) => each.length).map((each) => each.join(""));
}

/** As few known pieces of a word as possible, around as few other characters. */
function segmented(word, entries) {
  const characters = [...word], best = [[0, 0, 0]]; // the cost, where the last piece begins, whether it is one
  const isLess = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
  for (let end = 1; end <= characters.length; end++) {
    let least = [best[end - 1][0] + UNKNOWN, end - 1, 0];
    for (let start = Math.max(0, end - LONGEST_PIECE); start < end; start++) {
      if (!entries.has(characters.slice(start, end).join(""))) continue;
      const option = [best[start][0] + 1, start, 1];
      if (isLess(option, least) < 0) least = option;
    }
    best.push(least);
  }
  const found = [];
  for (let end = characters.length; end; end = best[end][1]) {
    if (best[end][2]) found.push(characters.slice(best[end][1], end).join(""));
  }
  return found.reverse();
}

/** The n-grams of 2 to 4 characters of a word with a mark at both ends. */
function ngramsOf(word) {
  const characters = [..."<", ...word, ">"], found = new Set();
  for (const size of [2, 3, 4]) {
    for (let start = 0; start + size <= characters.length; start++) found.add(characters.slice(start, start + size).join(""));
  }
  return found;
}

/** A glossary from its lines (`packed_glossary`), whose native words are numbers in a list of words. */
export function readGlossary(lines, words) {
  const entries = new Map(), natives = new Set(), spelled = [], sizes = [], byNgram = new Map();
  let before = [];
  for (const line of lines ? lines.split("\n") : []) {
    const [head, tail] = line.split("\t");
    before = [...before.slice(0, parseInt(head[0], 36)), ...head.slice(1)];
    const word = before.join(""), native = tail ? tail.split(" ").map((each) => words[parseInt(each, 36)]) : [];
    entries.set(word, native.join(" "));
    for (const each of native) natives.add(each);
    if (isJoined(before[0])) continue;
    const ngrams = ngramsOf(word);
    for (const ngram of ngrams) {
      if (!byNgram.has(ngram)) byNgram.set(ngram, []);
      byNgram.get(ngram).push(spelled.length);
    }
    spelled.push(word);
    sizes.push(ngrams.size);
  }
  return { entries, natives, spelled, sizes, byNgram };
}

/** The known word that is spelled most alike, the first of these; "" if none is alike. */
function nearest(word, { spelled, sizes, byNgram }) {
  const ngrams = ngramsOf(word), shared = new Map();
  for (const ngram of ngrams) {
    for (const place of byNgram.get(ngram) ?? []) shared.set(place, (shared.get(place) ?? 0) + 1);
  }
  let best = ALIKE, found = -1;
  for (const [place, count] of shared) {
    const alike = (2 * count) / (ngrams.size + sizes[place]);
    if (alike > best || (alike === best && place < found)) [best, found] = [alike, place];
  }
  return spelled[found] ?? "";
}

/** A text translated word by word, without unknown words and what follows the fortieth. */
export function gloss(text, glossary) {
  const { entries, natives } = glossary, found = [];
  const beginning = [...text.slice(0, 2 * MOST_READ)].slice(0, MOST_READ).join("");
  for (const run of wordsOf(beginning)) {
    for (const word of isJoined(run) ? segmented(run, entries) : [run]) {
      const native = entries.get(word) ?? (natives.has(word) ? word : (entries.get(nearest(word, glossary)) ?? ""));
      if (native && found.at(-1) !== native) found.push(native);
    }
  }
  return found.slice(0, MOST_WORDS).join(" ");
}
