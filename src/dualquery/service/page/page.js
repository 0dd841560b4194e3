// The page: sign in, ask, look.

import { Problem, ask, get, newKey, quote, signIn, signOut, signedIn } from "./asking.js";
import { attach } from "./completion.js";
import * as views from "./views.js";

const at = (id) => document.getElementById(id);
const state = { datasets: [], cap: 1, owner: false, oldest: null, replies: [], pending: null };

const chosen = () => state.datasets.find((each) => each.name === at("which").value) ?? state.datasets[0];
const how = () => document.querySelector("input[name=how]:checked").value;

function wanted() {
  const body = { question: at("question").value };
  if (chosen().free) return body;
  if (how() === "buy") body.error = Number(at("error").value);
  else if (how() === "free") body.free = true;
  else if (at("tolerance").value) body.tolerance = Number(at("tolerance").value);
  return body;
}

// A problem under the question, with a caret under the column where it has one.
function showFault(problem) {
  const { column, picture } = problem.details ?? {};
  const words = views.make("p", {}, column ? `column ${column}: ${problem.message}` : problem.message);
  at("question-fault").replaceChildren(words, ...(picture ? [views.make("pre", {}, picture)] : []));
  at("question").setAttribute("aria-invalid", "true");
  if (column && document.activeElement === at("question") && problem.asked) {
    at("question").setSelectionRange(column - 1, column);
  }
}

function clearFault() {
  at("question-fault").replaceChildren();
  at("question").removeAttribute("aria-invalid");
}

let waiting = 0;
function quoteSoon() {
  clearTimeout(waiting);
  clearFault();
  at("quote").textContent = "";
  state.pending = null;
  if (!at("question").value.trim()) return;
  waiting = setTimeout(async () => {
    const { free, ...body } = wanted();
    try {
      at("quote").textContent = free ? "free, and not tested" : (await quote(chosen().name, body)).words;
    } catch (problem) {
      if (problem.status === 422) at("quote").textContent = "";
      else showFault(problem);
    }
  }, 300);
}

async function submit(event) {
  event.preventDefault();
  clearFault();
  const button = at("ask").querySelector("button[type=submit]");
  button.disabled = true;
  state.pending ??= { key: newKey(), body: wanted(), dataset: chosen().name };
  try {
    const reply = await ask(state.pending.dataset, state.pending.body, state.pending.key);
    state.pending = null;
    views.answer(at("answer"), reply);
    await refresh();
  } catch (problem) {
    if (problem.status !== 0 && problem.status !== 503) state.pending = null; // what got lost keeps its key
    problem.asked = true;
    showFault(problem);
  } finally {
    button.disabled = false;
  }
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
  showHistory(told.replies, told.next);
  setTolerances(budget.tolerances);
  if (state.owner) await showOwner();
}

function showHistory(replies, next) {
  state.replies = replies;
  state.oldest = next;
  views.history(at("history"), replies, (reply) => views.answer(at("answer"), reply), state.owner);
  at("older").hidden = next === null;
}

async function older() {
  const more = await get(`/v1/history?most=50&before=${state.oldest}`);
  showHistory([...state.replies, ...more.replies], more.next);
}

async function showOwner() {
  at("owner").hidden = false;
  views.analysts(at("analysts"), (await get("/v1/analysts")).analysts);
  views.charges(at("charges"), (await get("/v1/charges?most=100")).charges, state.cap);
}

function setTolerances(tolerances) {
  if (at("tolerance").options.length) return;
  at("tolerance").append(new Option("the usual bound", ""));
  for (const each of tolerances) {
    const up = Number((Math.ceil(each * 1e4) / 1e4).toFixed(4));
    at("tolerance").append(new Option(String(up), String(up)));
  }
}

function showDataset() {
  const dataset = chosen();
  at("dataset-name").textContent = dataset.name;
  at("promise").textContent = dataset.free ? "a published release: asking it is free" : dataset.promise.promise ?? "";
  at("how").hidden = dataset.free;
  views.schema(at("schema"), dataset.attributes, (text) => {
    const field = at("question");
    field.value = field.value.trim() ? `${field.value.trim()} & ${text}` : text;
    field.focus();
    quoteSoon();
  });
  quoteSoon();
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
  const options = state.datasets.map((each) => new Option(each.free ? `${each.name} (a release: free)` : each.name, each.name));
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
