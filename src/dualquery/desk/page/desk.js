// The steward's desk: a step after the other, each a command that is run beside the page.

import { get, getFile, newKey, post, signIn, signedIn } from "./asking.js";
import { quoted } from "./completion.js";
import { curve, errorAt } from "./curve.js";
import { percent, points as asPoints, whole } from "./numbers.js";
import { budgetBar } from "./pictures.js";
import { allPublic, load, save, schema, show } from "./schema.js";
import { at, close, follow, list, open, run } from "./steps.js";
import { facts, make, table as tableOf } from "./views.js";

const state = { desk: null, table: "", named: null, points: [], book: null, releasing: null };
const button = (words, click, more = {}) => make("button", { type: "button", click, ...more }, words);
const link = (words, click) => button(words, click, { class: "plain" });
const number = (id) => (at(id).value.trim() === "" ? null : Number(at(id).value));

function fail(problem) {
  at("fault").textContent = problem.message ?? String(problem);
  if (problem.status === 401) at("desk").hidden = true;
}

// Whatever a button does: no two at once, and what is refused is said at the top unless its place has said it.
function doing(work) {
  return async (event) => {
    event?.preventDefault?.();
    const pressed = event?.submitter ?? event?.currentTarget;
    at("fault").textContent = "";
    if (pressed) pressed.disabled = true;
    try {
      await work(event);
    } catch (problem) {
      if (!problem.job && !problem.said) fail(problem);
    } finally {
      if (pressed) pressed.disabled = false;
    }
  };
}

const SIZES = ["bytes", "kB", "MB", "GB", "TB"];
function size(bytes) {
  const power = Math.min(Math.floor(Math.log10(Math.max(bytes, 1)) / 3), 4);
  return `${Number((bytes / 1000 ** power).toPrecision(3))} ${SIZES[power]}`;
}

async function refresh() {
  state.desk = await get("/v1/desk");
  at("folder").textContent = state.desk.folder;
  at("tables").replaceChildren(
    ...state.desk.tables.map((each) =>
      make("li", {}, button(each.name, doing(() => choose(each.name)), { class: "second" }), make("span", { class: "soft" }, ` ${size(each.size)}${each.schema ? ", has a schema" : ""}`)),
    ),
    ...(state.desk.tables.length ? [] : [make("li", { class: "soft" }, "There is no table here. Start the desk in the folder of your table, or name one below.")]),
  );
  at("releases").replaceChildren(...(state.desk.releases.length ? state.desk.releases.map(listed) : [make("p", { class: "soft" }, "None yet.")]));
  at("make-key").hidden = state.desk.key;
  at("key-words").textContent = state.desk.key ? "steward.key signs; give steward.key.pub to everybody." : "";
  at("use-key").disabled = !state.desk.key;
  if (state.desk.key) at("use-key").checked = true;
}

function listed(release) {
  const what = make("p", {}, make("b", {}, release.name), release.dataset ? ` ${release.dataset}` : "", make("span", { class: "soft" }, ` ${release.created.slice(0, 10)}, ${release.private ? release.cost : "NOT PRIVATE"}${release.signed ? ", signed" : ""}`));
  return make("div", { class: "release" }, what, make("p", {}, link("report", doing(() => look(release.name, "report.html"))), " ", link("download", doing(() => keepAll(release.name)))));
}

// 1. A table: its schema is drafted, unless there is one.
async function choose(name, named = null) {
  Object.assign(state, { table: name, named, points: [] });
  at("table-name").textContent = name;
  close("schema", "questions", "budget", "ledger", "release", "result");
  at("draft-job").replaceChildren();
  at("check-job").replaceChildren();
  const { there } = await post("/v1/there", theTable());
  if (!there) await run(at("draft-job"), "/v1/draft", theTable());
  await load(theTable());
  at("check-command").textContent = "";
  open("schema");
  if (!schema.draft) await ready();
}

const theTable = () => ({ table: state.table, ...(state.named ? { named: state.named } : {}) });
const namedAfter = () => (state.named ?? state.table).replace(/^.*\//, "").replace(/\..*$/, "");

// 2. The schema is saved, and compared with the table.
async function saved() {
  await save();
  if (schema.draft) {
    close("questions", "budget", "ledger", "release");
    throw new Error("Saved. Some columns are undecided still: mark what is public, or leave them out.");
  }
  await run(at("check-job"), "/v1/check", theTable());
  at("check-job").append(make("p", { class: "good" }, "The schema is saved, and the table fits it."));
  await ready();
}

// What is undecided, found privately: the marks are saved first, and another schema takes the place of this one.
function toFind() {
  const { queries, epsilon, expected, limit, ledger, draft, sign, registry, ...asks } = wanted();
  const known = schema.columns.some((each) => each.use && each.public);
  return { ...asks, known, epsilon: number("draft-epsilon") ?? 0.3 };
}

async function foreseen() {
  related();
  at("find").disabled = !state.book;
  at("ledger-first").hidden = Boolean(state.book);
  if (at("private-draft").open) at("private-command").textContent = (await post("/v1/private/command", toFind())).command;
}

async function found() {
  await save();
  try {
    await run(at("private-job"), "/v1/private", toFind());
  } finally {
    await spent();
    await load(theTable());
  }
  at("private-job").append(make("p", { class: "good" }, "Found, and public as it stands. Look at it, and save it."));
}

async function ready() {
  studied();
  for (const name of ["questions", "budget", "ledger", "release"]) open(name, { move: name === "questions" });
  const book = await spent();
  if (!at("dataset").value) at("dataset").value = at("about-dataset").value || namedAfter();
  if (!book && schema.unit) at("neighbours").value = "person-replace";
  related();
  await draw();
}

// 3. The questions, as SPECs.
const study = () => document.querySelector("input[name=study]:checked").value;
const chosen = () => [...at("chosen-columns").querySelectorAll("input:checked")].map((each) => each.value);

function studied() {
  const names = schema.columns.filter((each) => each.use && each.kind !== "items").map((each) => each.name);
  const boxes = names.map((name) => make("label", { class: "check" }, make("input", { type: "checkbox", value: name }), ` ${name}`));
  at("chosen-columns").replaceChildren(...boxes);
  at("outcome").replaceChildren(...names.map((name) => new Option(name, name)));
  asked();
}

function specs() {
  if (study() === "tables") {
    const names = chosen();
    const pairs = names.flatMap((a, i) => names.slice(i + 1).map((b) => `${a}*${b}`));
    return names.length ? [`tables:${(pairs.length ? pairs : names).join(",")}`] : [];
  }
  if (study() === "regress") {
    const terms = chosen().filter((name) => name !== at("outcome").value).map(quoted);
    return terms.length ? [`regress:${quoted(at("outcome").value)} ~ ${terms.join(" + ")}`] : [];
  }
  return [study()];
}

function asked() {
  at("chosen-columns").hidden = !["tables", "regress"].includes(study());
  at("outcome-line").hidden = study() !== "regress";
  at("spec").textContent = specs().join(" + ") || "choose columns";
}

// 4. The budget: what a release would be asked for, and a curve of plans.
function wanted() {
  const limit = number("limit");
  const delta = number("delta");
  const persons = at("neighbours").value.startsWith("person");
  return {
    ...theTable(),
    queries: specs(),
    epsilon: number("epsilon") ?? 1,
    ...(delta === null ? {} : { delta }),
    neighbours: at("neighbours").value,
    ...(persons ? { records_per_person: number("persons") ?? 3 } : {}),
    ...(at("expected-line").hidden ? {} : { expected: number("expected") ?? 10_000 }),
    ...(limit === null ? {} : { limit: limit / 100 }),
    ledger: at("use-ledger").checked,
    draft: !at("use-draft-line").hidden && at("use-ledger").checked && at("use-draft").checked,
    sign: at("use-key").checked,
    registry: at("use-registry").checked,
  };
}

function related() {
  const relation = at("neighbours").value;
  at("persons-line").hidden = !relation.startsWith("person");
  at("expected-line").hidden = relation === "replace" && !state.named;
  at("delta").placeholder = relation.endsWith("replace") ? "min(1/n², 10⁻⁶)" : "give one, such as 0.000001";
  if (!relation.endsWith("replace") && number("delta") === null) at("delta").value = "0.000001";
}

let latest = 0;
async function draw() {
  const mine = (latest += 1);
  at("curve-fault").textContent = "";
  if (!specs().length) return mark();
  at("predicted").textContent = "planning …";
  try {
    const found = await post("/v1/curve", wanted());
    if (mine !== latest) return undefined;
    state.points = found.points;
    at("plan-command").textContent = found.command;
    const refused = found.points.find((each) => each.refused);
    if (refused) at("curve-fault").textContent = `At ε = ${refused.epsilon}: ${refused.refused}`;
  } catch (problem) {
    if (mine !== latest) return undefined;
    state.points = [];
    at("curve-fault").textContent = problem.message;
  }
  return mark();
}

async function mark() {
  const epsilon = number("epsilon") ?? 1;
  at("curve").replaceChildren(curve(state.points, epsilon));
  const error = errorAt(state.points, epsilon);
  at("predicted").textContent = error ? `At ε = ${epsilon} an answer is predicted to be off by ${asPoints(error)} percentage points, on average over all questions.` : "";
  at("release-words").textContent = at("use-ledger").checked ? "The ledger is charged first." : "No ledger is charged: nobody adds up your releases.";
  try {
    at("release-command").textContent = specs().length ? (await post("/v1/command", wanted())).command : "";
  } catch (problem) {
    at("release-command").textContent = problem.message;
  }
}

let waiting = 0;
function soon(work) {
  clearTimeout(waiting);
  waiting = setTimeout(() => work().catch(fail), 250);
}

// 5. The ledger.
async function spent() {
  const { books, command } = await post("/v1/spent", theTable());
  const book = books[0] ?? null;
  state.book = book;
  at("ledger-form").hidden = Boolean(book);
  at("use-ledger").disabled = !book;
  at("use-ledger").checked = Boolean(book);
  at("ledger-command").textContent = book ? command : "";
  at("ledger").replaceChildren(...(book ? account(book) : []));
  if (book) {
    const [relation, , most] = book.neighbours.split(/[ =]/);
    at("neighbours").value = relation;
    const records = /\d+/.exec(book.neighbours.slice(relation.length));
    if (records ?? most) at("persons").value = records ? records[0] : most;
  }
  at("neighbours").disabled = Boolean(book);
  return book;
}

function account(book) {
  const share = Number(book.spent) / Number(book.cap);
  const rows = book.charges.map((each) => [String(each.sequence), each.day, each.what, percent(Number(each.charged) / Number(book.cap))]);
  return [
    make("h3", {}, book.dataset),
    budgetBar([{ name: "spent", words: "spent", share }, { name: "free", words: "left", share: 1 - share }]),
    make("p", {}, `Spent ${percent(share)} of ε = ${book.epsilon}. What is left is enough for one release of ε = ${Math.floor(book.epsilon_left * 1000) / 1000}.`),
    ...(rows.length ? [make("div", { class: "wide" }, tableOf([["number", "number"], ["day"], ["what"], ["charged", "number"]], rows, "Charges"))] : []),
  ];
}

// 6. The release, once per press: a key that is kept goes on with what was begun.
async function release() {
  state.releasing ??= newKey();
  sessionStorage.setItem("releasing", state.releasing);
  try {
    const job = await run(at("release-job"), "/v1/release", wanted(), state.releasing);
    settled();
    await refresh(); // the files of the release are listed with it
    shown(job);
  } catch (problem) {
    if (problem.job || problem.status) settled();
    throw problem;
  } finally {
    if (state.table) await spent();
    if (state.table) await mark();
  }
}

// Only what has ended, or was refused, is forgotten: where the desk did not answer it may be going on, or be done.
function settled() {
  state.releasing = null;
  sessionStorage.removeItem("releasing");
}

async function resume() {
  state.releasing = sessionStorage.getItem("releasing");
  if (!state.releasing) return;
  try {
    const begun = await get(`/v1/jobs/${state.releasing}`);
    open("release");
    const job = await follow(at("release-job"), begun);
    settled();
    await refresh();
    shown(job);
  } catch (problem) {
    if (problem.job || problem.status) settled();
    if (!problem.job && problem.status !== 404) throw problem;
  }
}

const VERDICTS = { pass: "good", fail: "bad", "cannot tell": "soft" };

// 7. What came out.
function shown(job) {
  const found = JSON.parse(job.output);
  const name = found.folder;
  const measured = (found.check?.orders ?? []).map((each) => `tables of ${each.attributes === 1 ? "one column" : `${each.attributes} columns`}${each.of ? ` of ${each.of}` : ""}: ${percent(each.error)} ± ${Number((100 * each.bar).toPrecision(1))} points, summed over the cells`);
  const files = (state.desk.releases.find((each) => each.name === name)?.files ?? []).map((file) => link(file, doing(() => keep(name, file))));
  at("result").replaceChildren(
    facts([
      ["Privacy", found.private ? `ε = ${Number(found.spent.epsilon.toPrecision(4))} of ${found.budget.epsilon}, δ = ${Number(found.budget.delta.toPrecision(3))}, neighbours ${found.budget.neighbours}` : "NOT PRIVATE: do not publish"],
      ["Synthetic rows", found.synthetic_rows === null ? "answers only" : whole(found.synthetic_rows)],
      ["Predicted error", found.predicted_error.mean === null ? "unknown" : `${asPoints(found.predicted_error.mean)} percentage points on average`],
      ["Measured error", measured.length ? measured.join("; ") : `not measured${found.check?.why_not ? `: ${found.check.why_not}` : ""}`],
      ...(found.accepted ? [["Verdict", make("b", { class: VERDICTS[found.accepted.verdict] }, found.accepted.verdict)]] : []),
      ...(found.book ? [["Ledger", `charge ${found.book.sequence} of ${found.book.name}`]] : []),
      ["Folder", `${state.desk.folder}/${name}`],
    ]),
    make("p", { class: "send" },
      button("Look at the report", doing(() => look(name, "report.html")), { id: "look" }),
      button("Download all of it", doing(() => keepAll(name)), { class: "second", id: "keep" }),
      ...(at("use-registry").checked ? [link("questions of NIST SP 800-226", doing(() => look(name, "registry.html")))] : [])),
    ...(files.length ? [make("details", {}, make("summary", {}, "Files"), make("ul", {}, ...files.map((each) => make("li", {}, each))))] : []),
    make("p", { class: "soft" }, "Check it as anybody can:"),
    make("pre", { class: "command" }, `dualquery verify ${name}${at("use-key").checked ? " --key steward.key.pub" : ""}`),
  );
  open("result");
}

async function look(name, file) {
  const tab = window.open("", "_blank");
  try {
    const { address } = await post("/v1/look", { release: name, name: file });
    if (tab) tab.location = address;
    else location.assign(address);
  } catch (problem) {
    tab?.close();
    throw problem;
  }
}

function download(name, blob) {
  const made = make("a", { download: name, href: URL.createObjectURL(blob) });
  made.click();
  setTimeout(() => URL.revokeObjectURL(made.href), 1000);
}

const keep = async (name, file) => download(file, await getFile(`/v1/files/${encodeURIComponent(name)}/${encodeURIComponent(file)}`));
const keepAll = async (name) => download(`${name}.zip`, await getFile(`/v1/folders/${encodeURIComponent(name)}`));

at("other").addEventListener("submit", doing(() => choose(at("other-table").value.trim(), at("other-named").value.trim() || null)));
at("all-public").addEventListener("click", allPublic);
at("filter").addEventListener("input", show);
at("save-schema").addEventListener("click", doing(saved));
at("questions-step").addEventListener("input", () => {
  asked();
  soon(draw);
});
at("slider").addEventListener("input", () => {
  at("epsilon").value = String(Number((10 ** Number(at("slider").value)).toPrecision(2)));
  soon(mark);
});
at("budget-step").addEventListener("input", (event) => {
  if (event.target === at("slider")) return;
  if (event.target === at("epsilon") && number("epsilon") > 0) at("slider").value = String(Math.log10(number("epsilon")));
  related();
  soon(event.target === at("epsilon") || event.target === at("limit") ? mark : draw);
});
at("release-step").addEventListener("input", () => soon(mark));
at("ledger-form").addEventListener("submit", doing(async () => {
  const { neighbours, records_per_person } = wanted();
  const asks = { ...theTable(), dataset: at("dataset").value.trim(), epsilon: number("cap"), delta: number("cap-delta"), neighbours, ...(records_per_person ? { records_per_person } : {}) };
  await run(at("ledger-job"), "/v1/ledger", asks);
  await spent();
  await foreseen();
  await mark();
}));
at("private-draft").addEventListener("toggle", doing(async () => {
  if (!at("private-draft").open) return;
  await spent();
  await foreseen();
}));
at("draft-epsilon").addEventListener("input", () => soon(foreseen));
at("columns").addEventListener("change", () => soon(foreseen));
at("ledger-first").addEventListener("click", () => {
  if (!at("dataset").value) at("dataset").value = at("about-dataset").value || namedAfter();
  open("ledger");
});
at("find").addEventListener("click", doing(found));
at("make-key").addEventListener("click", doing(async () => {
  await run(at("key-job"), "/v1/key", undefined);
  await refresh();
  await mark();
}));
at("release").addEventListener("click", doing(release));

async function begin() {
  if (location.hash.length > 20) {
    signIn(location.hash.slice(1));
    history.replaceState(null, "", location.pathname);
  }
  list();
  if (!signedIn()) return fail({ message: "Open the link that `dualquery desk` printed: it holds the token of this desk." });
  try {
    await refresh();
    at("desk").hidden = false;
    await resume();
  } catch (problem) {
    fail(problem);
  }
  return undefined;
}
begin();
