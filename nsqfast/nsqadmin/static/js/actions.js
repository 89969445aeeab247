// For admins: buttons [data-action], the menus of rows, and what is picked in tables.
import { actAtOnce, openAction, openDisconnect } from "./action.js";
import "./bulk.js";
import { button } from "./dom.js";
import { openPublish } from "./publish.js";

// The menu closes first, so that the dialog gives the focus back to what opened it.
function run(menu, { topic = "", channel = "", node, client }, action) {
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
  const order = { action, topic, channel };
  if (node && action !== "create") order.nodes = [node];
  if (action === "publish") openPublish(topic);
  else if (action === "disconnect") openDisconnect({ topic, channel, node, address: client });
  else if (action === "pause" || action === "unpause") actAtOnce(order);
  else openAction(order);
}

/** [action, text, class] for what a row's data-topic, data-channel, data-node and data-client say. */
function itemsOf({ topic, channel, node, client, paused, inactive }) {
  if (client) return [["disconnect", `Disconnect ${client}…`, "risky"]];
  if (!topic) return node ? [["create", "Create topic…"]] : [];
  const what = (channel ? `channel ${channel}` : `topic ${topic}`) + (node ? ` on ${node}` : "");
  const found = [];
  if (!channel && !node) found.push(["publish", `Publish to ${what}…`], ["create", `Create channel in ${what}…`]);
  if (!inactive) {
    if (paused !== "all") found.push(["pause", `Pause ${what}`]);
    if (paused !== "none") found.push(["unpause", `Unpause ${what}`]);
    found.push(["empty", `Empty ${what}…`, "risky"]);
  }
  if (!node) found.push(["delete", `Delete ${what}…`, "risky"]);
  else if (!channel) found.push(["tombstone", `Tombstone ${what}…`, "risky"]);
  return found;
}

function fill(menu) {
  const { dataset } = menu.closest("tr");
  const buttons = itemsOf(dataset).map(([action, text, kind = "plainly"]) => button(kind, text, () => run(menu, dataset, action)));
  menu.querySelector(".items").replaceChildren(...buttons);
}

const onToggle = ({ target }) => target.matches?.("[data-actions] > details") && target.open && fill(target);
document.addEventListener("toggle", onToggle, true);

document.addEventListener("click", (event) => {
  const chosen = event.target.closest("[data-action]");
  if (chosen) run(chosen.closest("details.menu"), chosen.dataset, chosen.dataset.action);
});
