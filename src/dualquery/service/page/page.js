// The page: sign in, ask, look.

import { Problem, ask, get, getFile, newKey, quote, signIn, signOut, signedIn } from "./asking.js";
import { attach } from "./completion.js";
import { points } from "./numbers.js";
import * as views from "./views.js";

const at = (id) => document.getElementById(id);
const state = { datasets: [], cap: 1, owner: false, oldest: null, replies: [], pending: null };
const STANDARD_ERRORS = 1.959964; // in the ± of 95%

const chosen = () => state.datasets.find((each) => each.name === at("which").value) ?? state.datasets[0];
const recordsOf = (name) => state.datasets.find((each) => each.name === name)?.records ?? null;
const how = () => document.querySelector("input[name=how]:checked").value;

function wanted() {
  const body = { question: at("question").value };
  if (chosen().free) return body;
  if (how() === "buy") body.error = Number(at("error").value) / 100 / STANDARD_ERRORS;
  else if (how() === "free") body.free = true;
  else if (at("tolerance").value) body.tolerance = Number(at("tolerance").value);
  return body;
}

// A problem under the question, with a caret under the column where it has one. No earlier answer stays below it.
function showFault(problem) {
  const { column, picture } = problem.details ?? {};
  const words = views.make("p", {}, column ? `column ${column}: ${problem.message}` : problem.message);
  at("question-fault").replaceChildren(words, ...(picture ? [views.make("pre", {}, picture)] : []));
  at("question").setAttribute("aria-invalid", "true");
  at("answer").replaceChildren();
  if (column && document.activeElement === at("question") && problem.asked) {
    at("question").setSelectionRange(column - 1, column);
  }
}

function clearFault() {
  at("question-fault").replaceChildren();
  at("question").removeAttribute("aria-invalid");
}

function showAnswer(reply) {
  clearFault();
  views.answer(at("answer"), reply, recordsOf(reply.dataset), download);
}

let waiting = 0;
function quoteSoon() {
  clearTimeout(waiting);
  clearFault();
  at("quote").textContent = "";
  state.pending = null;
  if (!at("question").value.trim()) return;
  const mine = setTimeout(async () => {
    const { free, ...body } = wanted();
    try {
      const found = free ? { words: "always free" } : await quote(chosen().name, body);
      if (mine !== waiting) return; // something else was typed meanwhile
      at("quote").textContent = `${found.words}.`;
      if (found.tolerances?.length) setTolerances(found.tolerances);
    } catch (problem) {
      if (mine === waiting && problem.status !== 422) showFault(problem);
    }
  }, 300);
  waiting = mine;
}

async function submit(event) {
  event.preventDefault();
  clearFault();
  at("answer").replaceChildren();
  const button = at("ask").querySelector("button[type=submit]");
  button.disabled = true;
  try {
    await fitTolerance();
    state.pending ??= { key: newKey(), body: wanted(), dataset: chosen().name };
    const reply = await ask(state.pending.dataset, state.pending.body, state.pending.key);
    state.pending = null;
    at("quote").textContent = "";
    showAnswer(reply);
    await refresh();
  } catch (problem) {
    if (problem.status !== 0 && problem.status !== 503) state.pending = null; // what got lost keeps its key
    problem.asked = true;
    showFault(problem);
  } finally {
    button.disabled = false;
  }
}

// What a check can notice depends on the question: the choice is a word, and the number behind it is asked for.
async function fitTolerance() {
  if (state.pending || chosen().free || how() !== "test" || !at("tolerance").value) return;
  const { tolerances } = await quote(chosen().name, { question: at("question").value });
  if (tolerances?.length) setTolerances(tolerances);
}

async function refresh() {
  const table = state.datasets.find((each) => each.kind === "interactive");
  const [budget, told] = await Promise.all([
    get(`/v1/datasets/${encodeURIComponent(table.name)}/budget`),
    get("/v1/history?most=50"),
  ]);
  state.cap = budget.cap;
  state.owner = budget.owner;
  views.budget(at("budget"), budget);
  showHistory(told);
  if (!at("tolerance").options.length) setTolerances(budget.tolerances);
  if (state.owner) await showOwner();
}

// A page of history, behind what is shown already; `next` is where the page behind it begins.
function showHistory({ replies, next }, before = []) {
  // A reply from before an upgrade has no ± of 95%.
  state.replies = [...before, ...replies.map((reply) => ({ bars_95: reply.values.map(() => null), ...reply }))];
  state.oldest = next;
  views.history(at("history"), state.replies, showAnswer, state.owner);
  at("older").hidden = state.oldest === null;
}

async function older() {
  showHistory(await get(`/v1/history?most=50&before=${state.oldest}`), state.replies);
}

async function showOwner() {
  at("owner").hidden = false;
  views.analysts(at("analysts"), (await get("/v1/analysts")).analysts);
  views.charges(at("charges"), (await get("/v1/charges?most=100")).charges, state.cap);
}

// Three words for the menu of thresholds: half of the usual one, the usual one, twice.
const MENU = [["smaller errors, too", 0], ["the usual", 2], ["larger errors only", 4]];

function setTolerances(tolerances) {
  const before = at("tolerance").selectedIndex;
  const options = MENU.filter(([, i]) => i === 2 || tolerances[i] <= 0.5).map(([words, i]) => {
    const up = Math.ceil(tolerances[i] * 1e6) / 1e6;
    return new Option(`${words}: from ${points(tolerances[i])} points on`, i === 2 ? "" : String(up), false, i === 2);
  });
  at("tolerance").replaceChildren(...options);
  if (before >= 0 && before < options.length) at("tolerance").selectedIndex = before;
}

function put(text) {
  at("question").value = text;
  at("question").focus();
  quoteSoon();
}

function showDataset() {
  const dataset = chosen();
  at("dataset-name").textContent = dataset.name;
  document.title = `${dataset.name}: statistics of a confidential table`;
  at("question").placeholder = dataset.examples.question;
  at("how").hidden = dataset.free;
  views.about(at("promise"), at("documents"), dataset, state.datasets, keep);
  views.help(at("help"), dataset, put);
  views.schema(at("schema"), dataset.attributes, (text) => {
    const before = at("question").value.trim();
    put(before ? `${before} & ${text}` : text);
  });
  quoteSoon();
}

function download(name, kind, content) {
  const link = views.make("a", { download: name, href: URL.createObjectURL(new Blob([content], { type: kind })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function keep(dataset, what, kind, name) {
  at("document-fault").textContent = "";
  try {
    download(name, kind, await getFile(`/v1/datasets/${encodeURIComponent(dataset)}/${what}`));
  } catch (problem) {
    at("document-fault").textContent = problem.message;
  }
}

async function open() {
  try {
    state.datasets = await get("/v1/datasets");
  } catch (problem) {
    signOut();
    show(false);
    at("sign-in-fault").textContent = problem instanceof Problem ? problem.message : "something went wrong";
    return;
  }
  const options = state.datasets.map((each) => new Option(each.free ? `${each.name} (a published release, free)` : each.name, each.name));
  at("which").replaceChildren(...options);
  show(true);
  showDataset();
  await refresh();
  at("question").focus();
}

function show(inside) {
  at("sign-in").hidden = inside;
  at("service").hidden = !inside;
  at("sign-out").hidden = !inside;
  at("sign-in-fault").textContent = "";
}

at("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  signIn(at("token").value);
  at("token").value = "";
  open();
});
at("sign-out").addEventListener("click", () => {
  signOut();
  location.reload();
});
at("ask").addEventListener("submit", submit);
at("older").addEventListener("click", older);
at("which").addEventListener("change", showDataset);
at("how").addEventListener("input", quoteSoon);
at("question").addEventListener("input", quoteSoon);
at("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.ctrlKey) at("ask").requestSubmit();
});
attach(at("question"), at("suggestions"), () => chosen().attributes);
if (signedIn()) open();
