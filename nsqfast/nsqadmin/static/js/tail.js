// The tail: a stream of events, read while this page is seen.
import { plant } from "./bodies.js";
import { el } from "./dom.js";
import { send } from "./page.js";
import { unixElement } from "./times.js";

const ROWS_MAX = 200;
const list = document.getElementById("tail-list");
const start = document.getElementById("tail-start");
const stop = document.getElementById("tail-stop");
const state = document.getElementById("tail-state");
const { topic, view } = JSON.parse(document.getElementById("messages").textContent);
let open = null;

function makePayload({ id, text, is_hex }) {
  const pre = el(is_hex ? "pre.payload.hex" : "pre.payload", { tabIndex: 0, role: "group", "aria-label": `Body of ${id}`, textContent: text });
  pre.dataset.payload = is_hex ? "hex" : view;
  return pre;
}

function show(message) {
  const facts = ["", message.node, `${message.size.toLocaleString("en")} B`];
  if (message.is_truncated) facts.push("cut");
  if (message.is_masked) facts.push("values hidden by --mask-json");
  if (message.kind === "hidden") facts.push(`hidden. ${message.text}`);
  const row = el("li", {}, el("p", {}, `${message.id} · `, unixElement(message.time), facts.join(" · ")));
  if (message.kind !== "hidden") {
    const pre = makePayload(message);
    row.append(pre);
    plant(pre);
  }
  list.prepend(row);
  while (list.children.length > ROWS_MAX) list.lastElementChild.remove();
}

const handlers = {
  message: show,
  status(now) {
    const parts = [`${now.shown} shown`];
    if (now.dropped) parts.push(`${now.dropped} dropped, too fast to show`);
    parts.push(`${now.left_s} s left`, `channel ${now.channel} on ${now.nodes} nsqd`, ...now.silent);
    state.textContent = parts.join(" · ");
  },
  end: (last) => end(last.reason),
};

function take(text) {
  const fields = Object.fromEntries(text.split("\n").map((line) => line.split(/: (.*)/s, 2)));
  handlers[fields.event]?.(JSON.parse(fields.data));
}

function end(reason) {
  open?.abort();
  open = null;
  start.hidden = false;
  stop.hidden = true;
  state.textContent = reason;
}

async function read(answer, mine) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done || open !== mine) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    events.forEach(take);
  }
}

async function begin() {
  const mine = (open = new AbortController());
  start.hidden = true;
  stop.hidden = false;
  stop.focus();
  state.textContent = "Connecting";
  list.replaceChildren();
  try {
    const answer = await send("POST", "/ui/tail", { topic, view }, mine.signal);
    if (answer.ok) await read(answer, mine);
    else return void end((await answer.json()).message);
    if (open === mine) end("The tail ended.");
  } catch (error) {
    if (open === mine) end(`No connection any more: ${error.message}`);
  }
}

start?.addEventListener("click", begin);
stop?.addEventListener("click", () => {
  end("Stopped.");
  start.focus();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden && open) end("Stopped, because this page was hidden.");
});
