// The page of dead letters: their bodies.
import { plant } from "./bodies.js";

for (const pre of document.querySelectorAll("[data-payload]")) plant(pre);
