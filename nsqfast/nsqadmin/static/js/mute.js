// The button of each problem and of each silence that is shown to admins.
import { el } from "./dom.js";
import { refresh } from "./live.js";
import { send, toast } from "./page.js";

const ROWS = "tr[data-problem], tr[data-scope]";

function command({ problem, muted, scope, target }) {
  if (scope) return { text: "End", path: "/ui/silences/end", body: { scope, target: target ?? "" }, done: "No longer silenced" };
  if (muted) return { text: "Unmute", path: "/ui/problems/unmute", body: { id: problem }, done: "No longer muted" };
  return { text: "Mute 1 h", path: "/ui/problems/mute", body: { id: problem }, done: "Muted for an hour" };
}

function fill() {
  for (const row of document.querySelectorAll(ROWS)) {
    const cell = row.querySelector("[data-actions]");
    if (!cell) continue;
    const button = cell.querySelector("button") ?? cell.appendChild(el("button", { type: "button" }));
    const { text } = command(row.dataset);
    if (button.textContent === text) continue;
    button.textContent = text;
    button.setAttribute("aria-label", `${text}: ${row.querySelector("th").innerText}`);
  }
}

async function obey(row) {
  const { path, body, done } = command(row.dataset);
  const answer = await send("POST", path, body);
  if (answer.ok) toast(done);
  else toast(`That failed: ${(await answer.json()).message}`, "crit");
  refresh();
}

document.addEventListener("click", (event) => {
  const row = event.target.closest(ROWS);
  if (row && event.target.closest("[data-actions] button")) obey(row);
});
document.addEventListener("nsqadmin:view", fill);
document.addEventListener("nsqadmin:rows", fill);
fill();
