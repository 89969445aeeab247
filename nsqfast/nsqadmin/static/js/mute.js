// The button of each problem that is shown to admins.
import { refresh } from "./live.js";
import { send, toast } from "./page.js";

function fill() {
  for (const row of document.querySelectorAll("tr[data-problem]")) {
    const cell = row.querySelector("[data-actions]");
    if (!cell) continue;
    const button = cell.querySelector("button") ?? cell.appendChild(document.createElement("button"));
    button.type = "button";
    const text = row.dataset.muted ? "Unmute" : "Mute 1 h";
    if (button.textContent === text) continue;
    button.textContent = text;
    button.setAttribute("aria-label", `${text}: ${row.querySelector("th").innerText}`);
  }
}

async function mute(row) {
  const action = row.dataset.muted ? "unmute" : "mute";
  const answer = await send("POST", `/ui/problems/${action}`, { id: row.dataset.problem });
  if (answer.ok) toast(action === "mute" ? "Muted for an hour" : "No longer muted");
  else toast(`That failed: ${(await answer.json()).message}`, "crit");
  refresh();
}

document.addEventListener("click", (event) => {
  const row = event.target.closest("tr[data-problem]");
  if (row && event.target.closest("[data-actions] button")) mute(row);
});
document.addEventListener("nsqadmin:view", fill);
document.addEventListener("nsqadmin:rows", fill);
fill();
