// A dialog that sends a test message, or an edited copy of one. Its text stays when sending fails; that of a test message
// also when the dialog is closed.
import { ask, errorLine, setError } from "./action.js";
import { openDialog } from "./dialog.js";
import { button, el, plural } from "./dom.js";
import { refresh } from "./live.js";
import { toast } from "./page.js";

const dialogs = new Map(); // by topic

const labelled = (text, input) => {
  input.id = `publish-${text.replaceAll(/\W/g, "")}`;
  return el("p", {}, el("label", { for: input.id, textContent: text }), input);
};

const readFile = (file) =>
  new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => fail(reader.error);
    reader.readAsDataURL(file);
  });

function make(topic, copy) {
  const text = el("textarea.wide", { rows: 8, spellcheck: false, value: copy?.text ?? "" });
  const file = el("input.wide", { type: "file" });
  const count = el("input", { type: "number", min: 1, max: 1000, value: 1, required: true });
  const defer = el("input", { type: "number", min: 0, value: 0, required: true });
  const node = el("select.wide");
  const error = errorLine();
  const go = el("button.solid", `Publish to ${topic}`);
  const submit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    const chosen = file.files[0];
    try {
      const body = chosen ? await readFile(chosen) : text.value;
      const given = { topic, body, is_base64: !!chosen, count: count.valueAsNumber, defer_ms: defer.valueAsNumber, node: node.value };
      const said = await ask("/ui/publish", given);
      const sent = plural(said.sent ?? 0, "message");
      const part = said.sent ? `${sent} sent, then` : "Not sent";
      setError(error, said.ok ? "" : `${part}: ${said.text ?? said.message}`);
      if (!said.ok) return;
      toast(`Published ${sent} to ${topic} on ${said.node}`);
      dialog.close();
      refresh();
    } catch (failure) {
      setError(error, `Not sent: ${failure.message}`);
    } finally {
      go.disabled = false;
    }
  };
  const title = el("h2", { id: "publish-title", textContent: copy ? "Edit a copy" : `Publish to topic ${topic}` });
  const lines = copy ? [el("ul.lines", {}, ...copy.lines.map((line) => el("li", line)))] : [];
  const buttons = el("div.buttons", {}, button("close", "Close", () => dialog.close()), go);
  const numbers = el("div.fields", {}, labelled("Copies", count), labelled("Defer, ms", defer));
  const form = el("form", { submit }, ...lines, labelled("Body", text), labelled("or a file instead", file), numbers, labelled("Node", node), error, buttons);
  const dialog = el("dialog", { "aria-labelledby": title.id }, title, form);
  return { dialog, text, node };
}

/** Of a `copy` its text, and lines that say what it is. */
export async function openPublish(topic, copy = null) {
  for (const other of dialogs.values()) other.dialog.remove();
  if (copy || !dialogs.has(topic)) dialogs.set(topic, make(topic, copy));
  const { dialog, text, node } = dialogs.get(topic);
  document.body.append(dialog);
  openDialog(dialog, text);
  const { nodes = [] } = await ask("/ui/effect", { action: "create", topic });
  const options = nodes.map((one) => el("option", { value: one.node, textContent: one.is_chosen ? one.node : `${one.node}, has not got the topic yet` }));
  node.replaceChildren(el("option", { value: "", textContent: "Any that has the topic" }), ...options);
}
