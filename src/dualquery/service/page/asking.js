// The other end: requests with a token, and one shape of problem.

let token = sessionStorage.getItem("token") ?? "";

export function signedIn() {
  return token !== "";
}

export function signIn(text) {
  token = text.trim();
  sessionStorage.setItem("token", token);
}

export function signOut() {
  token = "";
  sessionStorage.removeItem("token");
}

export class Problem extends Error {
  constructor(status, error) {
    super(error.message ?? "the service refused");
    this.status = status;
    this.details = error;
  }
}

async function answered(method, path, body, headers = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Problem(0, { message: "the service does not answer; try again" });
  }
  if (!response.ok) throw new Problem(response.status, (await response.json().catch(() => ({}))).error ?? {});
  return response;
}

const request = async (...parts) => (await answered(...parts)).json().catch(() => ({}));

export const get = (path) => request("GET", path);

export const getFile = async (path) => (await answered("GET", path)).blob();

export const quote = (dataset, body) => request("POST", `/v1/datasets/${encodeURIComponent(dataset)}/quote`, body);

// A key of its own for each question: one that got lost on the way can be sent again.
export function ask(dataset, body, key) {
  const what = "error" in body ? "buy" : "ask";
  return request("POST", `/v1/datasets/${encodeURIComponent(dataset)}/${what}`, body, { "Idempotency-Key": key });
}

export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");
}

// A command of the desk; with a key it is begun once, however often it is sent.
export const post = (path, body, key) => request("POST", path, body, key ? { "Idempotency-Key": key } : {});
