// Copy buttons: they show only where the browser can copy, so that without JavaScript no dead button is left.

const announce = (words) => document.dispatchEvent(new CustomEvent("signalbox:announce", { detail: words }));

function show(root) {
  for (const button of root.querySelectorAll("[data-copy], [data-copy-link]")) button.hidden = false;
}

async function copy(button) {
  const text = button.dataset.copy ?? location.href;
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied.");
  } catch {
    announce("The browser did not allow copying. Select the text instead.");
  }
}

if (navigator.clipboard) {
  show(document);
  document.addEventListener("htmx:afterSwap", () => show(document));
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy], [data-copy-link]");
    if (button) copy(button);
  });
}
