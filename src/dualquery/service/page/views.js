// What stands on the page: answers, the schema, the budget, history, and what an owner sees.

import { count, percent, plural, points, share, shareWithBar, whole } from "./numbers.js";
import { budgetBar, cellBar, scale } from "./pictures.js";
import { quoted } from "./completion.js";

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "click") made.addEventListener("click", value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export function table(heads, rows, caption) {
  const head = make("tr", {}, ...heads.map(([name, kind]) => make("th", { scope: "col", class: kind ?? "" }, name)));
  const body = rows.map((row) => make("tr", {}, ...row.map((cell, i) => make("td", { class: heads[i][1] ?? "" }, cell))));
  const title = caption ? [make("caption", {}, caption)] : [];
  return make("table", {}, ...title, make("thead", {}, head), make("tbody", {}, ...body));
}

export function facts(rows) {
  return make("dl", { class: "facts" }, ...rows.flatMap(([name, words]) => [make("dt", {}, name), make("dd", {}, words)]));
}

const BADGES = {
  "not contradicted": "An estimate. It was checked against the table, and the check found no large error.",
  measured: "The check found the estimate far off, so it was measured anew.",
  bought: "Measured with the precision that was paid for.",
  "not checked": "An estimate. It was not checked against the table.",
  release: "Computed from a published release. It was not checked against the table.",
};

export function badge(reply) {
  const known = reply.badge in BADGES ? reply.badge.replaceAll(" ", "-") : "";
  return make("span", { class: `badge ${known}` }, reply.badge);
}

// The guarantee in words; a wide one is called so.
function guarantee(reply) {
  if (reply.bound === null) return "None: it was not checked.";
  const sure = `${Math.round(100 * reply.confidence)}% confidence`;
  const wide = reply.bound > 0.1 ? " That is wide: for the likely error see ±." : "";
  if (reply.values.length !== 1) return `Every cell is within ${points(reply.bound)} percentage points, all at once, with ${sure}.${wide}`;
  const [low, high] = [Math.max(reply.values[0] - reply.bound, 0), Math.min(reply.values[0] + reply.bound, 1)];
  return `Between ${share(low, reply.bound).value} and ${share(high, reply.bound).value}, with ${sure}.${wide}`;
}

function paidChecks(number) {
  return plural(number, "paid check", "paid checks");
}

// An answer: the share with its ±, the count, what stands behind it, what it cost.
export function answer(place, reply, records, download) {
  const single = reply.labels.length === 0;
  const cost = reply.free ? "Free." : `${percent(reply.cost.share)} of the budget.`;
  place.replaceChildren(
    make("h3", {}, reply.question),
    ...(!reply.values.length ? [make("p", {}, "This table was free, and is too long to be kept: ask again.")]
      : single ? one(reply, records) : many(reply, records, download)),
    make("p", { class: "behind" }, badge(reply), ` ${BADGES[reply.badge] ?? reply.words}`),
    facts([
      ["Likely error", "± covers the true value in 19 of 20 cases (95%)."],
      ["Guaranteed", guarantee(reply)],
      ["Cost", `${cost} Left: ${paidChecks(reply.left.fires)}, ${percent(reply.quota_left.share)} of your quota.`],
    ]),
  );
}

function one(reply, records) {
  const [value, bar] = [reply.values[0], reply.bars_95[0]];
  const written = share(value, bar);
  const people = count(value, bar, records);
  const number = make("p", { class: "value" }, written.value);
  if (written.bar) number.append(" ", make("span", { class: "bar-words" }, `± ${written.bar} percentage points`));
  const about = people && `About ${people.value} of ${records.measured ? "about " : ""}${whole(records.rows)} records` + (people.bar ? ` (± ${people.bar}).` : ".");
  return [number, ...(about ? [make("p", { class: "count" }, about)] : []), scale(value, bar, reply.bound, `${shareWithBar(value, bar)} percentage points. ${guarantee(reply)}`)];
}

const MOST_ROWS = 500;
const MOST_COLUMNS = 8;

// A table: over two attributes crosswise, else one row per cell; every cell has its ± and its bar.
function many(reply, records, download) {
  const most = Math.max(...reply.values.map((value, i) => value + (reply.bars_95[i] ?? 0)), 1e-9);
  const drawn = (i) => cellBar(reply.values[i], reply.bars_95[i], most, `${shareWithBar(reply.values[i], reply.bars_95[i])}`);
  const columns = [...new Set(reply.labels.map((labels) => labels.at(-1)))];
  const crosswise = reply.attributes.length === 2 && columns.length <= MOST_COLUMNS;
  const shown = crosswise ? crossTable(reply, records, columns, drawn) : longTable(reply, records, drawn);
  const left = crosswise ? 0 : reply.labels.length - MOST_ROWS;
  const more = left > 0 ? [make("p", { class: "soft" }, `The first ${MOST_ROWS} of ${whole(reply.labels.length)} cells; all of them are in the file.`)] : [];
  const save = make("button", { type: "button", class: "plain", id: "save-table", click: () => download(`${reply.dataset}.csv`, "text/csv", csv(reply, records)) }, "Download the table (CSV)");
  return [make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" }, shown), ...more, make("p", {}, save)];
}

function crossTable(reply, records, columns, drawn) {
  const rows = [...new Set(reply.labels.map((labels) => labels[0]))];
  const counted = (i) => (records ? [make("span", { class: "soft" }, `about ${count(reply.values[i], reply.bars_95[i], records).value}`)] : []);
  const cell = (i) => {
    const written = share(reply.values[i], reply.bars_95[i]);
    const bar = written.bar ? [make("span", { class: "bar-words" }, `± ${written.bar}`)] : [];
    return make("td", { class: "number cell" }, make("span", { class: "cell-value" }, written.value), " ", ...bar, drawn(i), ...counted(i));
  };
  const head = make("tr", {}, make("th", { scope: "col" }, reply.attributes[0]), ...columns.map((name) => make("th", { scope: "col", class: "number" }, name)));
  const body = rows.map((name, i) => make("tr", {}, make("th", { scope: "row" }, name), ...columns.map((_, j) => cell(i * columns.length + j))));
  const caption = make("caption", {}, `Percent of all records${records ? ", and how many that is" : ""}`);
  return make("table", { class: "cross" }, caption, make("thead", {}, head), make("tbody", {}, ...body));
}

function longTable(reply, records, drawn) {
  const counted = records ? [["records", "number"]] : [];
  const heads = [...reply.attributes.map((name) => [name]), ["percent", "number"], ["±", "number"], ...counted, ["", "drawn"]];
  const rows = reply.labels.slice(0, MOST_ROWS).map((labels, i) => {
    const [value, bar] = [reply.values[i], reply.bars_95[i]];
    const written = share(value, bar);
    const people = records ? [`about ${count(value, bar, records).value}`] : [];
    return [...labels, written.value, written.bar ?? "–", ...people, drawn(i)];
  });
  return table(heads, rows, `Percent of all records, ${plural(reply.labels.length, "cell", "cells")}`);
}

function csv(reply, records) {
  const quote = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const counted = records ? ["count", ...(records.measured ? [] : ["count_plus_minus_95"])] : [];
  const lines = [[...reply.attributes, "share", "share_plus_minus_95", ...counted]];
  reply.labels.forEach((labels, i) => {
    const [value, bar] = [reply.values[i], reply.bars_95[i]];
    const counts = records ? [value * records.rows, ...(records.measured ? [] : [bar === null ? "" : bar * records.rows])] : [];
    lines.push([...labels, value, bar ?? "", ...counts]);
  });
  return lines.map((line) => line.map((each) => quote(String(each))).join(",")).join("\r\n") + "\r\n";
}

function described(attribute) {
  if (attribute.kind === "items") return plural(attribute.count, "item", "items");
  if (attribute.kind === "numeric") return `number, ${attribute.low} to ${attribute.high}`;
  return plural(attribute.values.length, "value", "values") + (attribute.kind === "ordered" ? ", in order" : "");
}

// The public schema; a click puts a condition into the question.
export function schema(place, attributes, put) {
  place.replaceChildren(
    ...attributes.map((attribute) => {
      const values = make("div", { class: "values" });
      for (const value of attribute.values.slice(0, 200)) {
        const text = `${quoted(attribute.name)} = ${quoted(value)}`;
        values.append(make("button", { type: "button", class: "plain", click: () => put(text) }, value));
      }
      if (attribute.kind === "items") values.append(`${attribute.name}[${attribute.first}] and ${attribute.count - 1} more`);
      const kind = make("span", { class: "soft" }, ` ${described(attribute)}`);
      return make("details", {}, make("summary", {}, attribute.name, kind), values);
    }),
  );
}

// How to write a question, with examples that this table has.
export function help(place, dataset, put) {
  const { question, table: asTable } = dataset.examples;
  const example = (text) => make("button", { type: "button", class: "plain example", click: () => put(text) }, text);
  const lines = [
    ...(question ? [["A condition, or several with & (and), | (or), ! (not)", example(question)]] : []),
    ...(asTable ? [["A table, a share for each cell", example(asTable)]] : []),
  ];
  place.replaceChildren(...lines.map(([words, button]) => make("p", {}, `${words}: `, button)));
}

// What a dataset comes with: its promise in words, and the documents of all datasets, to keep.
export function about(promise, documents, dataset, datasets, save) {
  const { epsilon, delta } = dataset.promise;
  promise.replaceChildren(
    make("p", {}, dataset.free
      ? "A published release. It may be asked as often as you like, at no cost."
      : "Answers are estimates with random errors. The errors limit what answers can tell about any one record, however many are asked."),
    make("p", { class: "soft" }, `Differential privacy with ε = ${Number(epsilon.toPrecision(3))}, δ = ${Number(delta.toPrecision(3))}.`),
  );
  const button = (name, words, what, kind, ending) =>
    make("button", { type: "button", class: "plain", "data-what": what, click: () => save(name, what, kind, `${name}-${what}.${ending}`) }, words);
  documents.replaceChildren(
    ...datasets.map(({ name, free }) =>
      make("li", {}, `${name}: `, button(name, "certificate (JSON)", "certificate", "application/json", "json"),
        ...(free ? [" ", button(name, "report (HTML)", "report", "text/html", "html")] : []))),
  );
}

export function budget(place, state) {
  const release = state.release_share;
  const spent = state.spent / state.cap;
  const parts = [
    { name: "release", words: "first release", share: release },
    { name: "spent", words: "checks and purchases", share: spent - release },
    { name: "free", words: "left", share: 1 - spent },
  ];
  const quota = state.quota;
  const mine = Math.floor(quota.left / state.price.units);
  const beside = state.published.filter((each) => !each.covered).map((each) => `${each.name} (ε = ${each.epsilon})`);
  place.replaceChildren(
    budgetBar(parts),
    make("ul", { class: "legend" }, ...parts.map(({ name, words, share: part }) => make("li", { class: `key-${name}` }, `${words} ${percent(part)}`))),
    make("p", {}, `Left for everybody: ${paidChecks(state.left.fires)}. Your quota pays for ${mine >= state.left.fires ? "all of them" : paidChecks(mine)}.`),
    make("p", { class: "soft" }, `A check is free unless it finds the estimate far off. Then the answer is measured anew, which costs ${percent(state.price.share)} of the budget.`),
    ...(beside.length ? [make("p", {}, `Published beside it, and not covered by this ε: ${beside.join(", ")}.`)] : []),
  );
}

export function history(place, replies, again, owner) {
  const heads = [["question"], ["answer", "number"], ["what it is"], ["cost", "number"], ...(owner ? [["analyst"]] : [])];
  const rows = replies.map((reply) => [
    make("button", { type: "button", class: "plain history-question", click: () => again(reply) }, reply.question),
    !reply.values.length ? "not kept" : reply.labels.length ? `${whole(reply.values.length)} cells` : shareWithBar(reply.values[0], reply.bars_95[0]),
    badge(reply),
    reply.free ? "free" : percent(reply.cost.share),
    ...(owner ? [reply.analyst] : []),
  ]);
  place.replaceChildren(replies.length ? table(heads, rows) : make("p", { class: "soft" }, "Nothing was asked yet."));
}

export function analysts(place, found) {
  const rows = found.map((each) => [each.name, each.role, percent(each.share), each.units ? percent(each.spent / each.units) : "–"]);
  place.replaceChildren(table([["name"], ["role"], ["quota", "number"], ["used of it", "number"]], rows, "Who may ask"));
}

const CHARGES = {
  planned: "first release, paid",
  opened: "table opened",
  prepaid: "a check, paid in advance",
  fired: "a paid check, used",
  charged: "a purchase, paid",
  bought: "a purchase, measured",
  burned: "a paid check, lost in a crash",
};

export function charges(place, found, cap) {
  const rows = found.map((each) => [String(each.line), CHARGES[each.kind] ?? each.kind, each.analyst || "–", percent(each.units / cap), percent(each.spent / cap)]);
  place.replaceChildren(table([["line", "number"], ["what"], ["who"], ["charged", "number"], ["spent by then", "number"]], rows, "Charges, newest first"));
}
