// What stands on the page: answers, the schema, the budget, history, and what an owner sees.

import { bars, budgetBar, errorBars, heatMap, percent, written } from "./pictures.js";
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

function table(heads, rows) {
  const head = make("tr", {}, ...heads.map(([name, kind]) => make("th", { scope: "col", class: kind ?? "" }, name)));
  const body = rows.map((row) => make("tr", {}, ...row.map((cell, i) => make("td", { class: heads[i][1] ?? "" }, cell))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

const BADGES = ["release", "verified", "measured", "bought", "unverified"];

export function badge(reply) {
  const known = BADGES.includes(reply.badge) ? reply.badge : "";
  return make("span", { class: `badge ${known}`, title: reply.words }, reply.badge);
}

// An answer: value or table, two error bars, badge, cost, what is left.
export function answer(place, reply) {
  const single = reply.labels.length === 0;
  const sure = reply.bound === null
    ? "no guarantee: it was not tested"
    : `guaranteed: off by at most ${reply.bound.toPrecision(2)} with ${Math.round(100 * reply.confidence)}% confidence`;
  const cost = reply.free ? "free" : `cost ${percent(reply.cost.share)} of the budget`;
  place.replaceChildren(
    make("p", { class: "soft" }, reply.question),
    ...(single
      ? [make("p", { class: "value" }, written(reply.values[0], reply.typical[0])), errorBars(reply.values[0], reply.typical[0], reply.bound, reply.confidence)]
      : [drawn(reply)]),
    make("p", {}, badge(reply), ` ${reply.words}`),
    make("p", {}, `${usual(reply)}; ${sure}.`),
    make("p", { class: "soft" }, `${cost}; ${reply.left.fires} fires and ${percent(reply.quota_left.share)} of your quota left.`),
  );
}

// The typical error in words: of a table the largest.
function usual(reply) {
  const errors = reply.typical.filter((each) => each !== null);
  return errors.length ? `Typical error ${Math.max(...errors).toPrecision(2)}` : "Typical error unknown";
}

function drawn(reply) {
  if (reply.attributes.length === 1) return bars(reply.labels, reply.values, reply.typical);
  const columns = [...new Set(reply.labels.map((labels) => labels.at(-1)))];
  if (reply.attributes.length === 2 && columns.length <= 40) {
    const rows = [...new Set(reply.labels.map((labels) => labels[0]))];
    return make("div", { class: "wide" }, heatMap(rows, columns, reply.values));
  }
  const heads = [...reply.attributes.map((name) => [name]), ["fraction", "number"]];
  const rows = reply.labels.slice(0, 500).map((labels, i) => [...labels, written(reply.values[i], reply.typical[i])]);
  return make("div", { class: "wide" }, table(heads, rows));
}

// The public schema; a click puts a condition into the question.
export function schema(place, attributes, put) {
  place.replaceChildren(
    ...attributes.map((attribute) => {
      const values = make("div", { class: "values" });
      for (const value of attribute.values.slice(0, 200)) {
        const text = `${quoted(attribute.name)} = ${quoted(value)}`;
        values.append(make("button", { type: "button", click: () => put(text) }, value));
      }
      if (attribute.kind === "items") values.append(`${attribute.name}[${attribute.first}] and ${attribute.count - 1} more`);
      return make("details", {}, make("summary", {}, `${attribute.name} (${attribute.kind})`), values);
    }),
  );
}

export function budget(place, state) {
  const release = state.release_share;
  const spent = state.spent / state.cap;
  const parts = [
    { name: "release", share: release },
    { name: "spent", share: spent - release },
    { name: "free", share: 1 - spent },
  ];
  const quota = state.quota;
  const own = quota.units ? percent(quota.left / quota.units) : "nothing";
  const beside = state.published.filter((each) => !each.covered).map((each) => `${each.name} (ε = ${each.epsilon})`);
  place.replaceChildren(
    budgetBar(parts),
    make("p", {}, `ε = ${state.epsilon}, δ = ${Number(state.delta.toPrecision(3))}. The release took ${percent(release)}, questions ${percent(spent - release)}; ` +
      `${percent(1 - spent)} is left, enough for ${state.left.fires} fires. Of your quota (${percent(quota.share)}) ${own} is left.`),
    ...(beside.length ? [make("p", {}, `Published beside it, and not covered by this ε: ${beside.join(", ")}.`)] : []),
  );
}

export function history(place, replies, again, owner) {
  const heads = [["question"], ["answer", "number"], ["badge"], ["cost", "number"], ...(owner ? [["analyst"]] : [])];
  const rows = replies.map((reply) => [
    make("button", { type: "button", class: "history-question", click: () => again(reply) }, reply.question),
    reply.labels.length ? `${reply.values.length} cells` : written(reply.values[0], reply.typical[0]),
    badge(reply),
    reply.free ? "free" : percent(reply.cost.share),
    ...(owner ? [reply.analyst] : []),
  ]);
  place.replaceChildren(replies.length ? table(heads, rows) : make("p", { class: "soft" }, "Nothing was asked yet."));
}

export function analysts(place, found) {
  const rows = found.map((each) => [each.name, each.role, percent(each.share), each.units ? percent(each.spent / each.units) : "–"]);
  place.replaceChildren(table([["name"], ["role"], ["quota", "number"], ["taken of it", "number"]], rows));
}

export function charges(place, found, cap) {
  const rows = found.map((each) => [String(each.line), each.kind, each.analyst || "–", percent(each.units / cap), percent(each.spent / cap)]);
  place.replaceChildren(table([["line", "number"], ["what"], ["who"], ["charged", "number"], ["spent then", "number"]], rows));
}
