// The page of dead letters: their bodies, and copies of them that are edited and published.
import { bytesOf, plant } from "./bodies.js";
import { openPublish } from "./publish.js";

for (const pre of document.querySelectorAll("[data-payload]")) plant(pre);

/** What a text field keeps as it is; null: it is binary, or has other ends of lines than a text field. */
function textOf(pre) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytesOf(pre));
    return text.includes("\r") || text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-edit]");
  if (!button) return;
  const topic = button.dataset.edit;
  const text = textOf(button.closest("[data-id]").querySelector("[data-payload]"));
  const lines = [`It is published as a new message: all channels of topic ${topic} get it. The dead letter stays.`];
  if (text === null) lines.push("The body is binary, or has line ends that a text field would change: download it, and choose the changed file.");
  openPublish(topic, { text: text ?? "", lines });
});
