// What the server says of this page.
import { el } from "./dom.js";

/** @type {{base: string, name: string, live: boolean, tick: number, at: number, next_ms: number, interval_s: number, admin: boolean}} */
export const page = JSON.parse(document.getElementById("page").textContent);

/** The address of PATH below --base-path. */
export const to = (path) => page.base + path;

/** Asks the server to do something; `body` is sent as JSON, with the token of the session. An expired login leads to the login page. */
export async function send(method, path, body, signal) {
  const headers = { "Content-Type": "application/json", Accept: "application/json" };
  const token = document.querySelector("meta[name=csrf-token]");
  if (token) headers["X-CSRF-Token"] = token.content;
  const answer = await fetch(to(path), { method, headers, body: JSON.stringify(body), redirect: "manual", signal });
  if (answer.status === 401 || answer.type === "opaqueredirect") logIn();
  return answer;
}

/** To the login page, and back here after it. */
export function logIn() {
  const here = location.pathname + location.search;
  location.assign(`${to("/login")}?next=${encodeURIComponent(here)}`);
}

/** A line at the bottom for some seconds; `kind` as that of chips, `buttons` are put behind the text. */
export function toast(text, kind = "ok", buttons = []) {
  const line = el("p.toast", { "data-kind": kind }, text, ...buttons);
  document.getElementById("toasts").append(line);
  setTimeout(() => line.remove(), buttons.length ? 15000 : 6000);
}
