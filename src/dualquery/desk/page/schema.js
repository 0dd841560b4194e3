// The schema as the curator edits it: one line per column, and a mark on every value.

import { post } from "./asking.js";
import { whole, plural } from "./numbers.js";
import { at } from "./steps.js";
import { make } from "./views.js";

const PAGE = 100;
export const schema = { asked: {}, digest: "", columns: [], units: [], unit: null, page: 0, draft: true, certificate: false };

const KINDS = {
  values: (each) => `${plural(each.values.length, "value", "values")}${each.ordered ? ", in order" : ""}`,
  numbers: (each) => plural(each.values.length, "listed number", "listed numbers"),
  bins: (each) => `numbers in ${plural(each.edges.length - 1, "bin", "bins")}, ${each.edges[0]} to ${each.edges.at(-1)}`,
  dates: (each) => `dates by ${each.by}, ${each.first} to ${each.last}`,
  items: (each) => plural(each.count, "item", "items"),
};

export async function load(asked) {
  take(asked, await post("/v1/columns", asked));
}

function take(asked, found) {
  Object.assign(schema, { asked, digest: found.digest, draft: found.draft, certificate: found.certificate, units: found.units, unit: found.unit, page: 0 });
  schema.columns = found.columns.map((each) => ({ ...each, use: true, kept: new Set(each.values ?? []), other: Boolean(each.other) }));
  at("left-out").replaceChildren(...leftOut(found.left_out));
  at("units").replaceChildren(...units());
  for (const name of ["dataset", "steward", "purpose", "source"]) at(`about-${name}`).value = found.about[name] ?? "";
  at("private-note").hidden = !found.draft;
  at("private-draft").hidden = !found.draft || found.certificate;
  at("use-draft-line").hidden = !found.certificate;
  show();
}

export async function save() {
  const about = {};
  for (const name of ["dataset", "steward", "purpose", "source"]) if (at(`about-${name}`).value.trim()) about[name] = at(`about-${name}`).value.trim();
  const columns = schema.columns.map((each) => ({
    name: each.name,
    use: each.use,
    public: each.public,
    ...(each.kind === "values" ? { values: each.values.filter((value) => each.kept.has(value)), other: each.other, ordered: each.ordered } : {}),
    ...(each.kind === "numbers" ? { values: each.values } : {}),
    ...(each.kind === "bins" ? { edges: each.edges } : {}),
    ...(each.kind === "dates" ? { first: each.first, last: each.last } : {}),
    ...("missing" in each ? { missing: each.missing } : {}),
  }));
  take(schema.asked, await post("/v1/schema", { ...schema.asked, digest: schema.digest, columns, about, unit: schema.unit }));
}

export function allPublic() {
  for (const each of schema.columns) each.public = true;
  show();
}

function leftOut(found) {
  if (!found.length) return [];
  const rows = found.map((each) => make("li", {}, make("b", {}, each.name), `: ${each.reason}`));
  return [make("details", {}, make("summary", {}, `${plural(found.length, "column", "columns")} left out`), make("ul", {}, ...rows))];
}

function units() {
  const proposed = schema.unit && !schema.units.some((each) => each.name === schema.unit) ? [...schema.units, { name: schema.unit, why: "named in the schema" }] : schema.units;
  if (!proposed.length) return [];
  const select = make("select", { id: "unit" });
  select.append(new Option("Nobody has several rows, or rows are to be protected one by one", "", !schema.unit, !schema.unit));
  for (const each of proposed) select.append(new Option(`${each.name} (${each.why})`, each.name, each.name === schema.unit, each.name === schema.unit));
  select.addEventListener("change", () => {
    schema.unit = select.value || null;
  });
  return [make("label", { for: "unit" }, "Whose record is a row?"), select];
}

export function show() {
  const wanted = at("filter").value.trim().toLowerCase();
  const found = schema.columns.filter((each) => each.name.toLowerCase().includes(wanted));
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  schema.page = Math.min(schema.page, pages - 1);
  at("filter-line").hidden = schema.columns.length <= 20;
  at("columns").replaceChildren(...found.slice(schema.page * PAGE, (schema.page + 1) * PAGE).map(line));
  at("pages").hidden = pages === 1;
  at("pages").replaceChildren(
    ...Array.from({ length: pages }, (_, i) => {
      const button = make("button", { type: "button", class: "plain", ...(i === schema.page ? { "aria-current": "page" } : {}) }, `${whole(i * PAGE + 1)} to ${whole(Math.min((i + 1) * PAGE, found.length))}`);
      button.addEventListener("click", () => {
        schema.page = i;
        show();
      });
      return button;
    }),
  );
  count();
}

function count() {
  const left = schema.columns.filter((each) => each.use && !each.public).length;
  at("undecided").textContent = left ? `${plural(left, "column is", "columns are")} undecided. A release is private once none is.` : "Every column is public knowledge.";
}

function box(words, checked, changed, more = {}) {
  const input = make("input", { type: "checkbox", ...(checked ? { checked: "" } : {}), ...more });
  input.addEventListener("change", () => changed(input.checked));
  return make("label", { class: "check" }, input, ` ${words}`);
}

function line(each) {
  const kind = make("span", { class: "soft" }, ` ${KINDS[each.kind](each)}`);
  const body = make("div", { class: "edit" });
  const details = make("details", {}, make("summary", {}, make("b", {}, each.name), kind), body);
  details.addEventListener("toggle", () => {
    if (details.open && !body.childElementCount) fill(body, each, () => (kind.textContent = ` ${KINDS[each.kind](each)}`));
  });
  const mark = box("public", each.public, (on) => {
    each.public = on;
    count();
  }, { "aria-label": `${each.name}: all of it is public knowledge` });
  const item = make("li", { class: each.use ? "" : "unused" }, details, mark);
  item.addEventListener("dropped", () => (item.className = each.use ? "" : "unused"));
  return item;
}

// What can be said of a column. A value that is not public goes to "other".
function fill(body, each, changed) {
  const parts = [];
  if (each.kind === "values") parts.push(...valuesOf(each, changed));
  if (each.kind === "numbers") parts.push(numbers("Numbers, increasing", each.values.join(", "), (list) => (each.values = list.map(String)), changed));
  if (each.kind === "bins") parts.push(numbers("Edges of the bins, increasing", each.edges.join(", "), (list) => (each.edges = list), changed));
  if (each.kind === "dates") parts.push(text("First", each.first, (value) => (each.first = value), changed), text("Last", each.last, (value) => (each.last = value), changed));
  if ("missing" in each) parts.push(box("a cell may be empty", each.missing, (on) => (each.missing = on)));
  parts.push(
    box("leave this column out", !each.use, (on) => {
      each.use = !on;
      body.dispatchEvent(new Event("dropped", { bubbles: true }));
      count();
    }),
  );
  body.replaceChildren(...parts);
}

function valuesOf(each, changed) {
  const chips = make("div", { class: "chips" });
  const draw = () =>
    chips.replaceChildren(
      ...each.values.map((value) => {
        const on = each.kept.has(value);
        const chip = make("button", { type: "button", class: "chip", "aria-pressed": String(on) }, value === "" ? "(nothing)" : value);
        chip.addEventListener("click", () => {
          if (on) {
            each.kept.delete(value);
            each.other = true;
          } else each.kept.add(value);
          draw();
        });
        return chip;
      }),
    );
  draw();
  const input = make("input", { "aria-label": `Another value of ${each.name}`, placeholder: "another value", maxlength: "200" });
  const add = make("button", { type: "button", class: "plain" }, "Add");
  const put = () => {
    const value = input.value.trim();
    if (value && !each.values.includes(value)) {
      each.values.push(value);
      each.kept.add(value);
      input.value = "";
      draw();
      changed();
    }
  };
  add.addEventListener("click", put);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      put();
    }
  });
  return [
    make("p", { class: "hint" }, "Pressed values are public and stay in the list; press one to make it private: it then counts as “other”."),
    chips,
    make("p", { class: "add" }, input, " ", add),
    box("“other” stands for values that are not listed", each.other, (on) => (each.other = on)),
    box("the order of the values means something", each.ordered, (on) => (each.ordered = on)),
  ];
}

function text(words, value, taken, changed) {
  const input = make("input", { value });
  input.addEventListener("change", () => {
    taken(input.value.trim());
    changed();
  });
  return make("label", {}, words, " ", input);
}

function numbers(words, value, taken, changed) {
  return text(words, value, (typed) => {
    const list = typed.split(/[,;\s]+/).filter(Boolean).map(Number);
    if (list.length && list.every(Number.isFinite)) taken(list);
  }, changed);
}
