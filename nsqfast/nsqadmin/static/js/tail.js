// The tail: a stream of events, read while this page is seen.
import { plant } from "./bodies.js";
import { send } from "./page.js";

const ROWS_MAX = 200;
const list = document.getElementById("tail-list");
const start = document.getElementById("tail-start");
const stop = document.getElementById("tail-stop");
const state = document.getElementById("tail-state");
let open = null;

function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const hex = row.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const shown = row.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  |${shown}|`);
  }
  return lines.join("\n");
}

function makePayload(id, body, view) {
  const pre = document.createElement("pre");
  const isHex = body.kind === "binary" || view === "hex";
  pre.className = isHex ? "payload hex" : "payload";
  pre.tabIndex = 0;
  pre.setAttribute("role", "group");
  pre.setAttribute("aria-label", `Body of ${id}`);
  pre.dataset.payload = isHex ? "hex" : view;
  const encode = () =>
    body.kind === "binary"
      ? Uint8Array.from(atob(body.body), (each) => each.charCodeAt(0))
      : new TextEncoder().encode(body.body);
  pre.textContent = isHex ? hexDump(encode()) : body.body;
  return pre;
}

function show(message) {
  const row = document.createElement("li");
  row.dataset.id = message.id;
  const head = document.createElement("p");
  const code = document.createElement("code");
  code.textContent = message.id;
  const time = new Date(message.time * 1000).toLocaleTimeString([], { hour12: false });
  const { body } = message;
  const facts = [time, message.node, `${message.size.toLocaleString("en")} B`];
  if (body.is_truncated) facts.push("cut");
  if (body.is_masked) facts.push("values hidden by --mask-json");
  head.append(code, ` ${facts.join(" · ")}`);
  row.append(head);
  if (body.kind === "hidden") {
    const reason = document.createElement("p");
    reason.className = "muted";
    reason.textContent = `Hidden. ${body.reason}`;
    row.append(reason);
  } else {
    const pre = makePayload(message.id, body, new URLSearchParams(location.search).get("view") || "json");
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
    const { topic } = JSON.parse(document.getElementById("messages").textContent);
    const answer = await send("POST", "/ui/tail", { topic }, mine.signal);
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
