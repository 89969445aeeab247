// Actions on many rows: those that are picked, or all that match the search of the page.
import { ask, confirm, dialog, follow, resultButtons, resultTable, show, stateOf, tellDone } from "./action.js";
import { button, el, number, plural, table } from "./dom.js";
import { refresh } from "./live.js";
import { toast } from "./page.js";
import { picked } from "./select.js";

const STEPS = [["pause", "Pause"], ["unpause", "Unpause"], ["empty", "Empty…"], ["delete", "Delete…"]];
const isAll = new WeakSet(); // sections in which all matches are chosen

const nameOf = (item) => (item.channel ? `${item.topic}/${item.channel}` : item.topic);

function orderOf(section, action) {
  if (isAll.has(section)) return { action, view: location.pathname + location.search, table: section.dataset.table };
  const keys = new Set(picked(section));
  const rows = [...section.querySelectorAll("tbody tr")].filter((row) => keys.has(row.dataset.key));
  return { action, items: rows.map(({ dataset }) => ({ topic: dataset.topic ?? "", channel: dataset.channel ?? "" })) };
}

function clear(section) {
  for (const box of section.querySelectorAll("input[name=pick], [data-pick-all]")) box.checked = box.indeterminate = false;
  draw(section);
}

function draw(section) {
  const count = picked(section).length;
  section.querySelector(".bulk")?.remove();
  if (!count) return isAll.delete(section);
  const total = Number(section.querySelector(".total").textContent.split(" ")[0].replaceAll(",", ""));
  const what = isAll.has(section) ? `all ${number(total)} matching` : `${number(count)} selected`;
  const more = button("all", `Select all ${number(total)} matching`, () => (isAll.add(section), draw(section)));
  more.hidden = isAll.has(section) || total <= count;
  // Nothing waits in what only nsqlookupd knows.
  const isInactive = !section.querySelector("tbody tr:not([data-inactive=yes])");
  const steps = STEPS.slice(isInactive ? -1 : 0).map(([action, text]) => {
    const step = button(text.endsWith("…") ? "risky" : "step", text, () => open(section, orderOf(section, action)));
    step.setAttribute("aria-label", `${text} ${what}`);
    return step;
  });
  const said = el("strong", what[0].toUpperCase() + what.slice(1));
  const bar = el("div.bulk", { role: "region", "aria-label": "Picked rows" }, said, more, ...steps, button("plain", "Clear", () => clear(section)));
  section.querySelector(".above").after(bar);
}

document.addEventListener("nsqadmin:picked", ({ target }) => target.dataset.table && draw(target));

async function open(section, order, known, notice) {
  const effect = known ?? (await ask("/ui/effect", order));
  if (!effect.items) return toast(effect.message, "crit");
  const sum = effect.items.reduce((total, item) => total + item.messages, 0);
  const rows = effect.items.map((item) => [nameOf(item), number(item.messages), number(item.clients), number(item.nodes)]);
  const down = effect.nodes_down.length ? el("p.warnings", `Not answering, so their numbers may be old: ${effect.nodes_down.join(", ")}`) : null;
  confirm(effect, "number", [table(effect.title, ["Name", "Messages", "Clients", "Nodes"], rows, ".num"), down], {
    order: () => ({ ...order, hash: effect.hash }),
    text: () => effect.button + (effect.loses ? `: lose ${plural(sum, "message")}` : ""),
    notice,
    done: (job) => {
      if (job.effect) return open(section, order, job.effect, job.message);
      clear(section);
      watch(job);
    },
  });
}

// A line says how it ended.
function watch(job) {
  if (!job.is_running) return end(job);
  const tell = (now) => [now.done, `${number(now.done)} of ${number(now.total)}`];
  follow(job, job.title, "/ui/actions", job.total, tell, end);
}

function end(job) {
  refresh();
  const missing = job.total - job.done;
  const failed = job.items.filter((item) => item.outcome !== "ok");
  if (!failed.length && !missing) {
    dialog.close();
    return tellDone(job);
  }
  const rest = missing ? `, stopped before ${number(missing)}` : "";
  const said = ` ${number(job.done - failed.length)} of ${number(job.total)} done${rest}`;
  const parts = failed.flatMap((item) => [el("h3", nameOf(item)), resultTable(item)]);
  const [close, buttons] = resultButtons(job, watch);
  show(job.title, [el("p", { role: "status" }, stateOf(job.outcome), said), ...parts, buttons], close);
}
