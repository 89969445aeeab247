// For admins: messages that are picked, or all that a search finds, are requeued, dropped, copied or moved.
import { NAME, ask, closer, dialog, errorLine, follow, resultTable, setError, show, stateOf } from "./action.js";
import { button, el, number, plural } from "./dom.js";
import { toast } from "./page.js";
import { picked } from "./select.js";
import { local } from "./times.js";

const look = JSON.parse(document.getElementById("messages").textContent);
const SAID = "nsqadmin.said";
const ACTIONS = { requeue: "Requeue", drop: "Drop…", copy: "Copy…", move: "Move…" };
const DONE = { requeue: "requeued", drop: "dropped", copy: "copied", move: "moved" };
const HELD = { ready: "They wait behind all others then.", deferred: "They are ready at once, behind all others.", in_flight: "Their consumers lose them: what they finish after this is an error." };
const LINES = {
  requeue: () => ["They keep their attempts.", HELD[look.state]],
  drop: () => ["Nobody gets them, and nothing brings them back.", "Other channels keep their copies."],
  copy: () => ["Their bodies are published to that topic, to all of its channels, with new ids.", "They stay here as well."],
  move: () => ["Their bodies are published to that topic, to all of its channels, with new ids.", "Then they are dropped here."],
};

const sections = () => [...document.querySelectorAll("section[data-node]")];
const nodeOf = ({ dataset: { node, place } }, ids) => ({ node, ids, place: ids.length ? place : "" });

const stamp = (iso) => local(new Date(iso)).replace("T", " ");

/** What was picked on all nodes; of a search all that it finds. */
function orderOf(action, isAll) {
  const { topic, channel, state, filter, since } = look;
  const ids = sections().map((section) => nodeOf(section, isAll ? [] : picked(section)));
  const nodes = ids.filter((one) => isAll || one.ids.length);
  return { action, topic, channel, state, nodes, filter: isAll ? filter : null, since: isAll ? since : "" };
}

function draw() {
  document.querySelector(".bulk")?.remove();
  const count = sections().reduce((sum, section) => sum + picked(section).length, 0);
  if (!count) return;
  const steps = (isAll, what) => Object.entries(ACTIONS).map(([action, text]) => {
    const step = button(action === "drop" ? "risky" : "step", text, () => open(action, isAll, what));
    step.setAttribute("aria-label", `${text} ${what}`);
    return step;
  });
  const what = `${number(count)} selected`;
  const all = look.filter || look.since ? [el("strong", "All that the search finds"), ...steps(true, "all that the search finds")] : [];
  const clear = button("plain", "Clear", () => {
    for (const box of document.querySelectorAll("input[name=pick], [data-pick-all]")) box.checked = box.indeterminate = false;
    draw();
  });
  const bar = el("div.bulk", { role: "region", "aria-label": "Picked messages" }, el("strong", what), ...steps(false, what), clear, ...all);
  document.querySelector(".look").after(bar);
}

document.addEventListener("nsqadmin:picked", draw);

function open(action, isAll, what) {
  const verb = ACTIONS[action].replace("…", "");
  const error = errorLine();
  const isCopy = action === "copy" || action === "move";
  const input = el("input.wide", { id: "change-to", required: true, pattern: NAME, maxLength: 64, autocomplete: "off", spellcheck: false });
  const typed = el("input.wide", { id: "change-confirm", required: true, autocomplete: "off", spellcheck: false, maxLength: 200 });
  const isTyped = isAll && (action === "drop" || action === "move");
  const go = el("button", { type: "submit", className: action === "drop" ? "danger" : "solid", textContent: `${verb} ${what}` });
  const update = () => (go.disabled = (isCopy && !input.checkValidity()) || (isTyped && typed.value !== look.channel));
  const submit = async (event) => {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    const change = await ask("/ui/messages/changes", { ...orderOf(action, isAll), to: isCopy ? input.value : "" });
    if (change.id) return watch(change);
    update();
    setError(error, change.message);
  };
  const which = [look.filter && ` whose body contains “${look.filter}”`, look.since && ` that came at ${stamp(look.since)} or later`].filter(Boolean).join(" and");
  const lines = [...(isAll ? [`All messages ${look.state.replace("_", " ")}${which}, on ${plural(sections().length, "node")}.`] : []), ...LINES[action]()];
  const cancel = closer("Cancel");
  const fields = [
    isCopy ? el("p", {}, el("label", { for: input.id, textContent: "Topic" }), input) : null,
    isTyped ? el("p", {}, el("label", { for: typed.id }, "Type the channel's name ", el("code", look.channel), " to confirm"), typed) : null,
  ];
  update();
  const form = el("form", { submit, input: update }, el("ul.lines", {}, ...lines.map((line) => el("li", line))), ...fields, error, el("div.buttons", {}, cancel, go));
  show(`${verb} ${what}`, [form], isCopy ? input : cancel);
}

function watch(change) {
  const depth = sections().reduce((sum, { dataset }) => sum + Number(dataset.depth || 0), 0);
  const tell = (now) => {
    const rate = number(Math.round(now.examined / Math.max(now.seconds, 0.001)));
    return [now.examined, `${number(now.changed)} ${DONE[now.action]}, ${number(now.examined)} of ${number(depth)} examined, ${rate} a second`];
  };
  const verb = ACTIONS[change.action].replace("…", "");
  follow(change, `${verb}: under way`, "/ui/messages/changes", Math.max(depth, 1), tell, end);
}

// Over the next load of the page; without storage nothing is said there.
function keep(text) {
  try {
    sessionStorage.setItem(SAID, text);
  } catch {
    // The page shows what came of it.
  }
}

function takeKept() {
  try {
    const text = sessionStorage.getItem(SAID);
    sessionStorage.removeItem(SAID);
    return text;
  } catch {
    return null;
  }
}

function end(change) {
  const said = `${plural(change.changed, "message")} ${DONE[change.action]}`;
  if (change.outcome === "ok" && !change.is_stopped) {
    dialog.close();
    keep(said);
    return location.reload();
  }
  const close = button("close", "Look again", () => location.reload());
  const results = resultTable({ results: change.results });
  show(change.is_stopped ? "Stopped" : "Not done everywhere", [el("p", { role: "status" }, change.is_stopped ? null : stateOf(change.outcome), ` ${said}`), results, el("div.buttons", {}, close)], close);
}

const kept = takeKept();
if (kept) toast(kept);
