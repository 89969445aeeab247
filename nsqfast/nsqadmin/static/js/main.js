// What every page runs. Pages with scripts of their own import from the modules beside this one.
import "./live.js";
import "./keys.js";
import "./theme.js";
import "./select.js";
import "./menus.js";
import "./copy.js";
import "./mute.js";
