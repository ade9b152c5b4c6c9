// Reads texts as `processing/processing_ridge.py` and `modeling/modeling_ridge.py` do, to the last character: a text
// is its character n-grams, hashed into rows. Every row has a vector, of which the page keeps two bits a value.

const SPACE = 32;
export const MOST_CHARACTERS = 512;
const PRIME = 2147483647, FACTOR = 1000003, SALT = 7919; // products stay below 2^53, and so exact
const SPACES = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u; // where Python splits
const LEVELS = [-1.51, -0.4528, 0.4528, 1.51]; // the four values that cost a normal distribution least

/** The code points of a text in lower case and compatible form, with a space at both ends and between words. */
export function charactersOf(text) {
  const words = text.normalize("NFKC").toLowerCase().split(SPACES).filter(Boolean);
  return Array.from(` ${words.join(" ")} `, (each) => each.codePointAt(0));
}

/** How often each row is hit by the n-grams of a text: a Map from row to count. */
export function rowsOf(text, { rows, shortest, longest }) {
  const characters = charactersOf(text).slice(0, MOST_CHARACTERS), counts = new Map();
  for (let size = shortest; size <= longest; size++) {
    for (let start = 0; start + size <= characters.length; start++) {
      const last = characters[start + size - 1]; // 0 is what the model pads with
      let hashed = size * SALT, isOne = last > 0 && (size > 2 || characters[start] !== SPACE || last !== SPACE);
      for (let offset = 0; offset < size; offset++) {
        const character = characters[start + offset];
        hashed = (hashed * FACTOR + character) % PRIME;
        if (offset > 0 && offset < size - 1 && character === SPACE) isOne = false;
      }
      if (isOne) counts.set(hashed % rows, (counts.get(hashed % rows) ?? 0) + 1);
    }
  }
  return counts;
}

/** The map of a language from its file: a factor for each column, one for each row, and the codes. */
export function unpack(base64, { rows, directions }) {
  const bytes = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
  const columns = new Float32Array(bytes.buffer, 0, directions);
  const scales = new Uint16Array(bytes.buffer, 4 * directions, rows);
  const codes = bytes.subarray(4 * directions + 2 * rows);
  if (codes.length !== Math.ceil((rows * directions) / 4)) throw new Error("The map of this language is damaged.");
  return { columns, scales, codes };
}

/** Vectors of native words from their whole numbers of 8 bits [words, directions]. */
export function unpackWords({ words, wordVectors, wordScales }, { directions }) {
  const values = Int8Array.from(atob(wordVectors ?? ""), (each) => each.charCodeAt(0));
  const places = new Map((words ?? []).map((word, place) => [word, place]));
  return { places, scales: wordScales, values, directions };
}

/** The direction of a text that is translated word by word; null where no word is known. */
export function glossed(translated, { places, scales, values, directions }) {
  const counts = new Map(), found = new Float64Array(directions);
  for (const word of translated.split(" ").filter(Boolean)) counts.set(word, (counts.get(word) ?? 0) + 1);
  for (const [word, count] of counts) {
    const place = places.get(word), weight = Math.log1p(count) * scales[place];
    for (let column = 0; column < directions; column++) found[column] += weight * values[place * directions + column];
  }
  return counts.size ? unit(found) : null;
}

function unit(vector) {
  const length = Math.hypot(...vector) || 1;
  return vector.map((value) => value / length);
}

/**
 * The embedding of a text, of unit length, in the space of the images. Where the text is translated word by word, the
 * direction of that is added with a weight.
 */
export function embed(text, map, space, direction = null, share = 0) {
  const { directions, mean, radius } = space;
  let found = new Float64Array(directions);
  for (const [row, count] of rowsOf(text, space)) {
    const weight = Math.log1p(count) * map.scales[row];
    if (!weight) continue;
    for (let column = 0, place = row * directions; column < directions; column++, place++) {
      found[column] += weight * LEVELS[(map.codes[place >> 2] >> (2 * (place & 3))) & 3];
    }
  }
  found = unit(found.map((value, column) => value * map.columns[column]));
  if (direction) found = unit(found.map((value, column) => value + share * direction[column]));
  return unit(Float64Array.from(mean, (value, column) => value + radius * (found[column] ?? 0)));
}
