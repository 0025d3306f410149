// Behaviour that HTML declares: every page works as links and forms before any of this runs.
import "./live.js";
import "./worst.js";
import "./ages.js";
import "./answers.js";
import "./dialogs.js";
import "./toasts.js";
import "./forms.js";
import "./keys.js";
import "./jump.js";
import "./rows.js";

if (document.querySelector("[data-chart]")) import("./charts.js");
