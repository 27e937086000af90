// The frame: theme and density at once, the slash key, disabled buttons, errors of background requests.

const root = document.documentElement;

function followLook() {
  const form = document.querySelector("form[data-look]");
  if (!form) return;
  form.querySelector('button[type="submit"]').hidden = true;
  form.addEventListener("change", async () => {
    const data = new FormData(form);
    root.dataset.theme = data.get("theme");
    root.dataset.density = data.get("density");
    const answer = await fetch(form.action, {
      method: "POST",
      body: data,
      headers: { "HX-Request": "true" },
    }).catch(() => null);
    if (!answer || !answer.ok) announce("The look could not be kept: the server did not answer.");
  });
}

function isTyping(target) {
  return target.closest("input, select, textarea, [contenteditable]") !== null;
}

// "/" goes to the first filter or search field of the page; g then a letter opens a page, as the navigation says.
function followKeys() {
  let leader = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "/") {
      const field = document.querySelector("[data-slash]");
      if (!field) return;
      event.preventDefault();
      field.focus();
      field.select?.();
      return;
    }
    if (event.key === "g") {
      leader = event.timeStamp;
      return;
    }
    if (leader && event.timeStamp - leader < 1500) {
      const link = document.querySelector(`.nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
      }
    }
    leader = 0;
  });
}

function refuseDisabled() {
  document.addEventListener(
    "click",
    (event) => {
      const button = event.target.closest('[aria-disabled="true"]');
      if (!button) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      const reason = document.getElementById(button.getAttribute("aria-describedby"));
      if (reason) announce(reason.textContent);
    },
    true,
  );
}

// A form that was sent is not sent twice; coming back with "Back" makes it usable again.
function sendOnce() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post" || form.hasAttribute("data-look")) return;
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "1";
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    const form = event.target.closest?.("form[data-sent]");
    if (form) delete form.dataset.sent;
  });
}

function announce(words) {
  const region = document.getElementById("announce");
  if (region && region.textContent !== words) region.textContent = words;
}

document.addEventListener("signalbox:announce", (event) => announce(event.detail));
document.addEventListener("htmx:responseError", (event) => {
  const id = event.detail.xhr.getResponseHeader("X-Request-ID");
  announce(`The server refused: ${event.detail.xhr.status}.${id ? ` Quote ${id}.` : ""}`);
});
document.addEventListener("htmx:sendError", () => announce("The server did not answer. Nothing was changed."));

followLook();
followKeys();
refuseDisabled();
sendOnce();
