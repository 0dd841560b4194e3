// Commands that run beside the page: begin one, follow it, and say what it says.

import { get, newKey, post } from "./asking.js";
import { make } from "./views.js";

export const at = (id) => document.getElementById(id);
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// Begins a command, shows it with its progress in `place`, and gives its end; a refusal is thrown.
export async function run(place, path, body, key = newKey()) {
  place.replaceChildren(make("p", { class: "soft" }, "starting …"));
  try {
    return await follow(place, await post(path, body, key));
  } catch (problem) {
    if (problem.job || problem.status === 401) throw problem;
    place.replaceChildren(make("p", { class: "fault", role: "alert" }, problem.message));
    throw Object.assign(problem, { said: true });
  }
}

export async function follow(place, job) {
  const command = make("pre", { class: "command" }, job.command);
  const bar = make("progress", { max: "1", "aria-label": "Progress" });
  const words = make("p", { class: "soft", "aria-live": "polite" }, job.stage);
  place.replaceChildren(command, bar, words);
  while (job.running) {
    await pause(250);
    job = await get(`/v1/jobs/${job.key}`);
    words.textContent = job.total ? `${job.stage}: ${Math.min(100, Math.floor((100 * job.done) / job.total))}%` : job.stage;
    if (job.total) bar.value = job.done / job.total;
    else bar.removeAttribute("value");
  }
  bar.remove();
  words.remove();
  place.append(...job.warnings.map((said) => make("p", { class: "warning" }, said)));
  if (job.problem) {
    place.append(make("p", { class: "fault", role: "alert" }, job.problem));
    throw Object.assign(new Error(job.problem), { job });
  }
  return job;
}

const STEPS = ["table", "schema", "questions", "budget", "ledger", "release", "result"];
const WORDS = ["Table", "What is public", "Questions", "Privacy and error", "Ledger and signature", "Release", "Result"];

// Shows a step and those before it, and moves there unless it is there already.
export function open(name, { move = true } = {}) {
  const fresh = at(`${name}-step`).hidden;
  at(`${name}-step`).hidden = false;
  list();
  if (move && fresh) {
    at(`${name}-step`).scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth", block: "start" });
    at(`${name}-title`).focus({ preventScroll: true });
  }
}

export function close(...names) {
  for (const name of names) at(`${name}-step`).hidden = true;
  list();
}

export function list() {
  const shown = STEPS.map((name) => !at(`${name}-step`).hidden);
  at("steps").replaceChildren(
    ...STEPS.map((name, i) => make("li", { class: shown[i] ? "" : "soft" }, shown[i] ? make("a", { href: `#${name}-step` }, WORDS[i]) : WORDS[i])),
  );
}
