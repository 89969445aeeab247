// Asks /ui/live when the server has something new, and stops while nobody looks.
import { logIn, page, to } from "./page.js";
import { patch } from "./patch.js";
import { clock as clockOf, unixElement } from "./times.js";

const WAIT_MAX_MS = 30000;

const holder = document.querySelector("[data-live]");
const words = document.getElementById("live-state");
const clock = document.getElementById("clock");
const button = document.getElementById("pause");

let tick = page.tick;
let timer = 0;
let asking = null;
let failures = 0;
let lostAt = 0;
let paused = false;

/** Ask now: something was changed. */
export function refresh() {
  if (!holder || paused || document.hidden) return;
  clearTimeout(timer);
  asking?.abort();
  ask();
}

export const isPaused = () => paused;

/** Stops, or goes on at once. Tells others by the event `nsqadmin:paused`. */
export function setPaused(stop) {
  if (!holder) return;
  paused = stop;
  button.setAttribute("aria-pressed", String(stop));
  document.dispatchEvent(new CustomEvent("nsqadmin:paused", { detail: stop }));
  if (stop) halt();
  else refresh();
  show();
}

function halt() {
  clearTimeout(timer);
  asking?.abort();
  asking = null;
}

// The status is spoken when it changes, so it changes with the state alone; the clock beside it is not spoken.
function show() {
  const state = paused ? "paused" : lostAt ? "lost" : page.live ? "live" : "gone";
  const interval = Number(page.interval_s.toPrecision(2));
  const text = {
    paused: "Paused",
    lost: `No connection since ${clockOf(new Date(lostAt))}`,
    live: `Live ${interval} s`,
    gone: "No longer there",
  }[state];
  holder.dataset.live = state;
  if (words.textContent !== text) words.textContent = text;
}

function showTime(unix) {
  if (!unix) return;
  clock.replaceChildren(unixElement(unix));
}

async function ask() {
  const mine = (asking = new AbortController());
  let wait = page.interval_s * 1000;
  try {
    const view = encodeURIComponent(location.pathname + location.search);
    const answer = await fetch(`${to("/ui/live")}?view=${view}&since=${tick}`, {
      signal: mine.signal,
      cache: "no-store",
      redirect: "manual",
      headers: { Accept: "application/json" },
    });
    if (answer.status === 401 || answer.type === "opaqueredirect") return logIn();
    if (answer.status === 404) page.live = false;
    else wait = await take(answer);
    failures = lostAt = 0;
  } catch (error) {
    if (mine.signal.aborted) return;
    lostAt ||= Date.now();
    wait = Math.min(WAIT_MAX_MS, 1000 * 2 ** failures++);
  }
  if (asking !== mine) return;
  asking = null;
  show();
  if (page.live) timer = setTimeout(ask, wait);
}

async function take(answer) {
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  if (answer.status === 204) {
    showTime(Number(answer.headers.get("Nsqadmin-At")));
    return Number(answer.headers.get("Nsqadmin-Next-Ms"));
  }
  const view = await answer.json();
  tick = view.tick;
  showTime(view.at);
  patch(view);
  document.dispatchEvent(new CustomEvent("nsqadmin:view", { detail: view }));
  return view.next_ms;
}

if (holder) {
  showTime(page.at);
  show();
  timer = setTimeout(ask, page.next_ms);
  button.addEventListener("click", () => setPaused(!paused));
  document.addEventListener("visibilitychange", () => (document.hidden ? halt() : refresh()));
  // Asked while the answer to "Log out" is on its way, the server would send the page to log in again, and back here.
  document.addEventListener("submit", ({ target }) => target.matches("form[action$='/logout']") && halt());
}
