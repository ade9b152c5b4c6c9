// Languages by their names and by their scripts, for both pages: that of `babelens serve` and the one without a server.

/** The name of a language in itself, with its tag. */
export function nameOf(tag) {
  try {
    const name = new Intl.DisplayNames([tag], { type: "language", fallback: "none" }).of(tag);
    return name ? `${name} (${tag})` : tag;
  } catch {
    return tag;
  }
}

/** The languages that are written as the text is, those of the browser first: what is offered where none is chosen. */
export function likelyLanguages(text, languages) {
  const scriptOf = (tag) => {
    try {
      return new Intl.Locale(tag).maximize().script;
    } catch {
      return "";
    }
  };
  const is = (script) => {
    const names = { Hans: "Han", Hant: "Han", Jpan: "Han", Kore: "Hangul" };
    try {
      return new RegExp(`\\p{Script=${names[script] ?? script}}`, "u").test(text);
    } catch {
      return false;
    }
  };
  const mine = (navigator.languages ?? []).map((tag) => tag.split("-")[0]);
  const rank = (tag) => (mine.includes(tag.split("-")[0]) ? 0 : 1);
  const known = languages.length ? languages : [...new Set(mine)];
  return known.filter((tag) => is(scriptOf(tag))).sort((a, b) => rank(a) - rank(b)).slice(0, 8);
}
