// Pages of messages: bodies, a search that goes on, deferred messages, the tail.
import { plant } from "./bodies.js";
import { openDialog } from "./dialog.js";
import { send, to, toast } from "./page.js";
import "./tail.js";

const look = JSON.parse(document.getElementById("messages").textContent);

for (const pre of document.querySelectorAll("[data-payload]")) plant(pre);

// A search goes on without showing anything, and the page is loaded where something was found.
let searching = null;

async function searchOn(button) {
  if (searching) return void (searching = null);
  const section = button.closest("[data-node]");
  const mine = (searching = {});
  const words = button.textContent;
  button.textContent = "Stop";
  const query = new URLSearchParams(location.search);
  query.set("node", section.dataset.node);
  query.set("offset", button.dataset.search);
  const wanted = new URLSearchParams({ ...look, ...Object.fromEntries(query) });
  const count = (number) => number.toLocaleString("en");
  let problem = "";
  while (searching === mine) {
    wanted.set("offset", query.get("offset"));
    const answer = await fetch(`${to("/ui/messages")}?${wanted}`, { headers: { Accept: "application/json" } });
    const found = answer.ok ? (await answer.json()).nodes[0] : null;
    if (!found || found.sentence) problem = found?.sentence || `The search ended: status ${answer.status}`;
    if (problem) break;
    section.querySelector("[data-scanned]").textContent =
      `scanned ${count(found.offset + found.scanned)} of ${count(found.depth)}`;
    if (found.messages.length || searching !== mine) return location.assign(`?${query}`);
    if (found.next_offset === null) {
      problem = found.is_complete ? "No more message has this text." : "nsqd does not look further than this.";
      break;
    }
    query.set("offset", found.next_offset);
  }
  if (searching === mine) searching = null;
  button.textContent = words;
  if (problem) toast(problem, "warn");
  else location.assign(`?${query}`);
}

async function change(action, body) {
  const { id } = body.dataset;
  const node = body.closest("[data-node]").dataset.node;
  const { topic, channel } = look;
  const answer = await send("POST", "/ui/deferred", { topic, channel, node, id, action });
  const told = await answer.json();
  if (answer.ok) {
    body.remove();
    toast(action === "run" ? `Message ${id} is queued now` : `Message ${id} is dropped`);
  } else toast(`That failed on ${node}: ${told.message}`, "crit");
}

function ask(body) {
  const dialog = document.getElementById("cancel-dialog");
  document.getElementById("cancel-id").textContent = body.dataset.id;
  document.getElementById("cancel-yes").onclick = () => {
    dialog.close();
    change("cancel", body);
  };
  openDialog(dialog, dialog.querySelector("[method=dialog] button"));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-change], [data-search]");
  if (!button) return;
  const body = button.closest("[data-id]");
  if (button.dataset.search) searchOn(button);
  else if (button.dataset.change === "run") change("run", body);
  else ask(body);
});
