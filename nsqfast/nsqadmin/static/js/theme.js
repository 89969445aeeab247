// As the system has it, dark, light; in a cookie, so that the server renders it.
import { to } from "./page.js";

const NEXT = { auto: "dark", dark: "light", light: "auto" };
const YEAR_S = 365 * 86400;
const root = document.documentElement;
const button = document.getElementById("theme");

/** Tells others by the event `nsqadmin:theme`. */
export function nextTheme() {
  const theme = NEXT[root.dataset.theme];
  root.dataset.theme = theme;
  document.cookie = `nsqadmin_theme=${theme}; path=${to("/")}; max-age=${YEAR_S}; samesite=lax`;
  button.setAttribute("aria-label", `Theme: ${theme}`);
  button.title = `Theme: ${theme} (t)`;
  button.form.elements.to.value = NEXT[theme];
  document.dispatchEvent(new CustomEvent("nsqadmin:theme", { detail: theme }));
}

button.form.addEventListener("submit", (event) => {
  event.preventDefault();
  nextTheme();
});
