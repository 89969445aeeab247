// Asks the server to do something, in a dialog that says what it will hit, and shows what each node made of it.
import { openDialog } from "./dialog.js";
import { button, el, number, plural, table } from "./dom.js";
import { refresh } from "./live.js";
import { send, toast, to } from "./page.js";

export const dialog = document.getElementById("action");
export const NAME = "[.a-zA-Z0-9_\\-]+(#ephemeral)?";
const POLL_MS = 400;
const AFTER_MS = 400; // until the server has asked the nodes

/** The JSON of an answer with its status; the text of any failure as `message`. */
export async function ask(path, body, method = "POST") {
  try {
    const answer = await send(method, path, body);
    const told = await answer.json().catch(() => ({ message: `status ${answer.status}` }));
    return { ...told, ok: answer.ok };
  } catch {
    return { ok: false, message: "nsqadmin does not answer" };
  }
}

/** Fills the dialog and opens it; `first` has the focus. */
export function show(title, content, first) {
  dialog.replaceChildren(el("h2", { id: "action-title", textContent: title }), ...content);
  if (dialog.open) first.focus();
  else openDialog(dialog, first);
}

export const closer = (text) => button("close", text, () => dialog.close());
export const errorLine = () => el("p.errors", { role: "alert", hidden: true });
export const setError = (line, text) => Object.assign(line, { textContent: text, hidden: !text });

/**
 * The dialog of an effect, single or of a set.
 * @param {object} effect as the server gives it
 * @param {string} kind of what has to be typed
 * @param {Element[]} parts what is shown between the lines and the buttons
 * @param {object} how `order()` to send, `text()` of the button, `isReady()`, `done(job)`; `first` has the focus
 */
export function confirm(effect, kind, parts, { order, text, isReady = () => true, done, first, notice = "" }) {
  const error = setError(errorLine(), notice);
  const typed = el("input.wide", { autocomplete: "off", spellcheck: false, id: "action-confirm", maxLength: 200 });
  const label = el("label", { for: typed.id }, `Type the ${kind} `, el("code", effect.confirm), " to confirm");
  const go = el("button", { type: "submit", className: effect.loses ? "danger" : "solid" });
  const update = () => {
    go.textContent = text();
    go.disabled = (effect.confirm && typed.value !== effect.confirm) || !isReady();
  };
  const submit = async (event) => {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    const job = await ask("/ui/actions", { action: effect.action, id: effect.id, confirm: typed.value, ...order() });
    if (job.items || job.effect) return done(job);
    update();
    setError(error, job.message);
  };
  const cancel = closer("Cancel");
  const lines = el("ul.lines", {}, ...effect.lines.map((line) => el("li", line)));
  const field = effect.confirm ? el("p", {}, label, typed) : null;
  const form = el("form", { submit, input: update }, lines, ...parts, field, error, el("div.buttons", {}, cancel, go));
  update();
  show(effect.title, [form], first ?? cancel);
}

function nodeHead(node, box, isNew) {
  const name = node.hostname && !node.node.startsWith(node.hostname) ? `${node.node} (${node.hostname})` : node.node;
  const counts = ["memory", "disk", "in_flight", "deferred"].filter((key) => node[key]);
  const detail = node.error
    ? el("div.crit", isNew ? node.error : `Not counted: ${node.error}. It is asked to do it anyway.`)
    : el("div.muted", counts.map((key) => `${number(node[key])} ${key.replace("_", " ")}`).join(", "));
  return el("div", {}, el("label", {}, box, name), detail);
}

function nameField(key, label, value) {
  const input = el("input.wide", { id: `action-${key}`, value, required: key === "topic", pattern: NAME, maxLength: 64, autocomplete: "off", spellcheck: false });
  return { input, element: el("p", {}, el("label", { for: input.id, textContent: label }), input) };
}

/** Opens the dialog of an action on one topic or channel; `order` is as the server's Order. */
export async function openAction(order) {
  const effect = await ask("/ui/effect", order);
  if (!effect.ok) return toast(effect.message, "crit");
  const { nodes, lookupds, topic, channel } = effect;
  const isNew = effect.action === "create";
  const boxes = nodes.map((node) => el("input", { type: "checkbox", checked: node.is_chosen, disabled: effect.action === "tombstone" }));
  const chosen = () => nodes.filter((_, index) => boxes[index].checked);
  const fields = isNew ? [nameField("topic", "Topic", topic), nameField("channel", "Channel (may be left empty)", channel)] : [];
  const named = () => (isNew ? { topic: fields[0].input.value, channel: fields[1].input.value } : { topic, channel });
  const heads = isNew ? ["Node"] : ["Node", "Messages", "Clients"];
  const rows = nodes.map((node, index) => [nodeHead(node, boxes[index], isNew), ...(isNew ? [] : [node.messages, node.clients].map((count) => (count === null ? "?" : number(count))))]);
  const parts = [
    ...effect.warnings.map((text) => el("p.warnings", text)),
    ...fields.map((field) => field.element),
    nodes.length ? table("Nodes", heads, rows, ".num") : null,
    lookupds.length ? el("p.muted", `Told as well: nsqlookupd ${lookupds.join(", ")}`) : null,
  ];
  const loss = () => {
    const sum = chosen().reduce((total, node) => total + (node.messages ?? 0), 0);
    return `: lose ${chosen().some((node) => node.error) ? "at least " : ""}${plural(sum, "message")}`;
  };
  confirm(effect, "name", parts, {
    order: () => ({ ...named(), nodes: chosen().map((node) => node.node), tell_lookupds: chosen().length === nodes.length }),
    text: () => (!isNew ? effect.button + (effect.loses ? loss() : "") : named().channel ? `Create channel ${named().channel}` : `Create topic ${named().topic}`),
    isReady: () => named().topic && (chosen().length || (lookupds.length && (isNew || !nodes.length))),
    done: showResult,
    first: fields[topic ? 1 : 0]?.input,
  });
}

/** Asks before it ends a consumer's connection; `wanted` is the body of the request. */
export function openDisconnect(wanted) {
  const error = errorLine();
  const go = el("button", { type: "submit", className: "danger", textContent: `Disconnect ${wanted.address}` });
  const submit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    const told = await ask("/ui/clients/disconnect", wanted);
    setTimeout(refresh, AFTER_MS);
    if (told.ok) {
      dialog.close();
      return toast(`${wanted.address} is disconnected`);
    }
    go.disabled = false;
    setError(error, told.message);
  };
  const lines = ["What it holds goes back to the channel at once, and to other consumers.", "A program that works connects again; one that hangs may not.", "What it finishes after this is delivered once more."];
  const cancel = closer("Cancel");
  show(`Disconnect ${wanted.address}`, [el("form", { submit }, el("ul.lines", {}, ...lines.map((line) => el("li", line))), error, el("div.buttons", {}, cancel, go))], cancel);
}

/**
 * How far a job has come, until it has ended; closing the dialog does not stop it.
 * @param {string} path of the server, below which the job has its own by its id
 * @param {Function} tell what is said of it, and how much of `max` is done: [done, text]
 */
export function follow(job, title, path, max, tell, end) {
  const bar = el("progress.wide", { max, value: 0, "aria-label": "Progress" });
  const said = el("p", { role: "status" });
  const stop = button("stop", "Stop", () => {
    stop.disabled = true;
    ask(`${path}/${job.id}/stop`, {});
  });
  show(title, [bar, said, el("div.buttons", {}, stop)], stop);
  const look = (now) => {
    if (now.is_running === undefined) return setError(said, now.message);
    if (!now.is_running) return end(now);
    [bar.value, said.textContent] = tell(now);
    setTimeout(async () => look(await ask(`${path}/${job.id}`, undefined, "GET")), POLL_MS);
  };
  look(job);
}

const OUTCOMES = { ok: ["ok", "done"], partial: ["warn", "done on some nodes only"], failed: ["crit", "failed: no node did it"] };
const chip = (kind, text) => el("span.chip", { textContent: text, "data-kind": kind });
export const stateOf = (outcome) => chip(...OUTCOMES[outcome]);

/** A table of what each node said. */
export function resultTable(item) {
  const rows = item.results.map(({ node, kind, ok, text }) => [
    el("div", {}, node, kind === "nsqlookupd" ? el("span.muted", " nsqlookupd") : null),
    el("div", {}, chip(ok ? "ok" : "crit", ok ? "ok" : "failed"), ` ${text}`),
  ]);
  const whole = table("Results", ["Node", "Result"], rows);
  whole.classList.add("results");
  return whole;
}

/** Buttons below a result; `again` gets the job of a retry. */
export function resultButtons(job, again) {
  const close = closer("Close");
  const retry = button("solid", "Retry failed", async () => {
    retry.disabled = true;
    const next = await ask(`/ui/actions/${job.id}/retry`, {});
    if (next.items) again(next);
    else toast(next.message, "crit");
  });
  return [close, el("div.buttons", {}, close, job.can_undo ? undoButton(job) : null, job.can_retry ? retry : null)];
}

/** What became of a job on one item. */
export function showResult(job) {
  setTimeout(refresh, AFTER_MS);
  const [item] = job.items;
  const isDone = job.outcome === "ok";
  const [close, buttons] = resultButtons(job, showResult);
  const state = el("p", { role: "status" }, stateOf(job.outcome));
  show(isDone ? job.title : `Not done everywhere: ${job.title[0].toLowerCase()}${job.title.slice(1)}`, [state, resultTable(item), buttons], close);
  if (job.action === "delete" && isDone) dialog.addEventListener("close", () => leave(item), { once: true });
}

// The page of what is gone cannot stay.
function leave(item) {
  const topic = to(`/topics/${encodeURIComponent(item.topic)}`);
  const here = location.pathname;
  if (here === topic && !item.channel) location.assign(to("/topics"));
  if (item.channel && here === `${topic}/${encodeURIComponent(item.channel)}`) location.assign(topic);
}

/** Does what loses nothing at once; a line says so and offers to take it back. */
export async function actAtOnce(order) {
  const job = await ask("/ui/actions", order);
  if (!job.items) return toast(job.message, "crit");
  if (job.outcome !== "ok") return showResult(job);
  setTimeout(refresh, AFTER_MS);
  tellDone(job, ` on ${plural(job.items[0].ok, "node")}`);
}

export const tellDone = (job, where = "") => toast(job.title + where, "ok", job.can_undo ? [undoButton(job)] : []);

function undoButton(job) {
  const undo = button("undo", "Undo", async () => {
    undo.disabled = true;
    let undone = await ask(`/ui/actions/${job.id}/undo`, {});
    // A job of many is answered before it has ended.
    while (undone.is_running) {
      await new Promise((go) => setTimeout(go, POLL_MS));
      undone = await ask(`/ui/actions/${undone.id}`, undefined, "GET");
    }
    undo.closest(".toast")?.remove();
    if (!undone.items) return toast(undone.message, "crit");
    setTimeout(refresh, AFTER_MS);
    if (undone.outcome !== "ok") return undone.total > 1 ? toast(`Not undone: ${job.title}`, "crit") : showResult(undone);
    toast(`Undone: ${job.title}`);
  });
  return undo;
}
