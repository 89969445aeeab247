// Pages of messages: bodies, a search that goes on, the tail.
import { plant } from "./bodies.js";
import { to, toast } from "./page.js";
import "./tail.js";
import { local } from "./times.js";

const look = JSON.parse(document.getElementById("messages").textContent);

for (const pre of document.querySelectorAll("[data-payload]")) plant(pre);

// A time is typed in the browser's zone, and stands in the address in UTC.
const since = document.querySelector("input[name=since]");
if (look.since) since.value = local(new Date(look.since));
since.form.addEventListener("formdata", ({ formData }) => {
  if (since.value) formData.set("since", new Date(since.value).toISOString());
  else formData.delete("since");
});

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
  query.set("from", button.dataset.place);
  const wanted = new URLSearchParams({ ...look, ...Object.fromEntries(query) });
  const count = (number) => number.toLocaleString("en");
  let problem = "";
  while (searching === mine) {
    wanted.set("offset", query.get("offset"));
    wanted.set("from", query.get("from"));
    const answer = await fetch(`${to("/ui/messages")}?${wanted}`, { headers: { Accept: "application/json" } });
    const found = answer.ok ? (await answer.json()).nodes[0] : null;
    if (!found || found.sentence) problem = found?.sentence || `The search ended: status ${answer.status}`;
    if (problem) break;
    section.querySelector("[data-scanned]").textContent =
      `scanned ${count(found.offset + found.scanned)} of ${count(found.depth)}`;
    if (found.messages.length || searching !== mine) return location.assign(`?${query}`);
    if (found.next_offset === null) {
      problem = found.is_complete ? "No further message matches." : "nsqd does not look further than this.";
      break;
    }
    query.set("offset", found.next_offset);
    query.set("from", found.next ?? "");
  }
  if (searching === mine) searching = null;
  button.textContent = words;
  if (problem) toast(problem, "warn");
  else location.assign(`?${query}`);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-search]");
  if (button) searchOn(button);
});
