// Shows the OpenAPI description of the server that this page comes from.

const make = (name, text = "", ...children) => {
  const made = document.createElement(name);
  made.textContent = text;
  made.append(...children);
  return made;
};

const api = document.getElementById("api");

function typeOf(schema = {}) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.type === "array") return `list of ${typeOf(schema.items)}`;
  const limits = [
    "minimum" in schema ? `at least ${schema.minimum}` : "",
    "maximum" in schema ? `at most ${schema.maximum}` : "",
    "maxLength" in schema ? `at most ${schema.maxLength} characters` : "",
    "default" in schema ? `default ${schema.default}` : "",
  ].filter(Boolean);
  const type = schema.contentMediaType ? "file" : schema.type ?? "";
  return limits.length ? `${type} (${limits.join(", ")})` : type;
}

function table(heads, rows) {
  const head = make("tr", "", ...heads.map((text) => make("th", text)));
  const body = rows.map((row) => make("tr", "", ...row.map((text) => make("td", text))));
  return make("table", "", make("thead", "", head), make("tbody", "", ...body));
}

function operation(path, method, facts, schemas) {
  const section = make("section", "", make("h2", facts.summary), make("p", "", make("code", `${method.toUpperCase()} ${path}`)));
  if (facts.description) section.append(make("p", facts.description));
  const parameters = (facts.parameters ?? []).map((each) => [
    each.name,
    each.in,
    typeOf(each.schema),
    each.required ? "yes" : "no",
    each.description ?? each.schema.description ?? "",
  ]);
  for (const [kind, body] of Object.entries(facts.requestBody?.content ?? {})) {
    const schema = schemas[typeOf(body.schema)] ?? body.schema;
    for (const [name, field] of Object.entries(schema.properties ?? {})) {
      parameters.push([name, kind, typeOf(field), (schema.required ?? []).includes(name) ? "yes" : "no", field.description ?? ""]);
    }
  }
  if (parameters.length) section.append(table(["parameter", "where", "type", "required", "meaning"], parameters));
  const answer = facts.responses["200"]?.content?.["application/json"]?.schema;
  if (answer?.$ref) section.append(make("p", `Answers with ${typeOf(answer)}.`));
  return section;
}

function schema(name, facts) {
  const rows = Object.entries(facts.properties ?? {}).map(([field, each]) => [field, typeOf(each), each.description ?? ""]);
  return make("section", "", make("h3", name), make("p", facts.description ?? ""), table(["field", "type", "meaning"], rows));
}

async function start() {
  try {
    const found = await (await fetch("openapi.json")).json();
    const schemas = found.components?.schemas ?? {};
    const operations = Object.entries(found.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, facts]) => operation(path, method, facts, schemas)));
    const answers = Object.entries(schemas)
      .filter(([name]) => !name.startsWith("Body_") && !name.includes("ValidationError"))
      .map(([name, facts]) => schema(name, facts));
    const errors = make("p", "An error is answered as {\"error\": \"a sentence\"}, with the status 400 for what the caller can mend, 401 without the token, 404 for an unknown id, 408 and 413 for bodies that are too slow or too large, and 503 when too many queries wait.");
    api.replaceChildren(make("p", found.info.description), ...operations, make("h2", "Answers"), errors, ...answers);
  } catch {
    api.replaceChildren(make("p", "The description of the API cannot be loaded. Is the server still running?"));
  }
  api.removeAttribute("aria-busy");
}

start();
