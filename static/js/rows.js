// Keys for tables whose rows are acted on: j and k move, x marks, Enter opens (the row's own link has the focus), and
// whatever carries data-hotkey="r" is pressed by that key. Everything works without them: they only press what is there.

const announce = (words) => document.dispatchEvent(new CustomEvent("signalbox:announce", { detail: words }));
const rows = () => [...document.querySelectorAll("[data-row]")];
const openerOf = (row) => row.querySelector("[data-open]");
const markOf = (row) => row.querySelector("[data-select]");
const marks = () => [...document.querySelectorAll("[data-row] [data-select]")];
let last = ""; // where the cursor was, by address: rows are replaced while one looks

function currentRow() {
  const focused = document.activeElement?.closest?.("[data-row]");
  if (focused) return focused;
  return rows().find((row) => last && openerOf(row)?.getAttribute("href") === last);
}

function move(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(currentRow());
  const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
  const link = openerOf(all[next]);
  last = link.getAttribute("href");
  link.focus();
  link.scrollIntoView({ block: "nearest" });
}

function toggle() {
  const mark = currentRow() && markOf(currentRow());
  if (!mark || mark.disabled) return;
  mark.checked = !mark.checked;
  mark.dispatchEvent(new Event("change", { bubbles: true }));
}

// An act by key is on what is marked, or else on the row where the cursor is.
function act(key) {
  const button = document.querySelector(`[data-hotkey="${CSS.escape(key)}"]`);
  if (!button) return false;
  if (button.form && marks().length && !marks().some((mark) => mark.checked)) {
    const mark = currentRow() && markOf(currentRow());
    if (!mark || mark.disabled) {
      announce("Nothing is marked. Move to a row with j and k, mark it with x.");
      return true;
    }
    toggle();
  }
  button.click();
  return true;
}

function clear() {
  const checked = marks().filter((mark) => mark.checked);
  for (const mark of checked) mark.checked = false;
  const all = document.querySelector("[data-all]");
  if (all) all.checked = false;
  if (checked.length) sayMarked();
}

const typing = (target) => target.closest("input:not([type=checkbox]), select, textarea, [contenteditable]") !== null;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  const done = {
    j: () => move(1),
    k: () => move(-1),
    x: toggle,
    "?": () => document.getElementById("keys")?.showModal(),
    Escape: clear,
  }[event.key];
  if (done) done();
  else if (!/^[rd]$/.test(event.key) || !act(event.key)) return;
  if (event.key !== "Escape") event.preventDefault();
});

// -- What is marked -----------------------------------------------------------------------------------------------
function sayMarked() {
  const count = marks().filter((mark) => mark.checked).length;
  const all = document.querySelector("[data-all]")?.checked;
  for (const place of document.querySelectorAll("[data-marked]")) {
    place.textContent = all ? "All that match" : count ? `${count} marked` : "None marked";
  }
  const page = document.querySelector("[data-select-page]");
  if (page) {
    page.checked = count > 0 && count === marks().filter((mark) => !mark.disabled).length;
    page.indeterminate = count > 0 && !page.checked;
  }
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-select-page]")) {
    for (const mark of marks()) if (!mark.disabled) mark.checked = event.target.checked;
  }
  if (event.target.matches("[data-select], [data-select-page], [data-all]")) sayMarked();
});

function show() {
  for (const box of document.querySelectorAll("[data-select-page], [data-keys-help]")) box.hidden = false;
  sayMarked();
}

show();
document.addEventListener("htmx:afterSwap", show);
