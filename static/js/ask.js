// Questions before an act. <a data-ask href="..."> leads to a page with one form; here that form opens in a dialog of
// the page that one is on. Whatever goes wrong, the link is followed as it is.

const FETCH_WITHIN_MS = 10_000;

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-ask]");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  ask(link).catch(() => location.assign(link.href));
});

async function ask(link) {
  if (link.getAttribute("aria-busy") === "true") return;
  link.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(link.href, {
      headers: { "HX-Request": "true" },
      credentials: "same-origin",
      cache: "no-store",
      signal: AbortSignal.timeout(FETCH_WITHIN_MS),
    });
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const form = page.querySelector("form[data-question]");
    if (!form) throw new Error("no question");
    open(form, link);
  } finally {
    link.removeAttribute("aria-busy");
  }
}

function open(form, link) {
  const dialog = document.createElement("dialog");
  dialog.className = "dialog";
  dialog.setAttribute("aria-labelledby", form.querySelector("h2").id);
  dialog.append(document.adoptNode(form));
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (link.isConnected) link.focus();
  });
  form.querySelector("[data-cancel]")?.addEventListener("click", (event) => {
    event.preventDefault();
    dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
  form.querySelector("[data-first], [autofocus], textarea, input:not([type=hidden]), [data-cancel]")?.focus();
}
