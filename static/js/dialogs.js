// Dialogs are opened by <button command="show-modal" commandfor="id">; this is for browsers without that attribute.
// Without JavaScript the button's own form or link is used: give it one.

const isNative = "commandForElement" in HTMLButtonElement.prototype;

function run(command, dialog) {
  if (command === "show-modal" && !dialog.open) dialog.showModal();
  else if (command === "close" && dialog.open) dialog.close();
}

if (!isNative) {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[command][commandfor]");
    if (!button || button.getAttribute("aria-disabled") === "true") return;
    const dialog = document.getElementById(button.getAttribute("commandfor"));
    if (!(dialog instanceof HTMLDialogElement)) return;
    event.preventDefault();
    run(button.getAttribute("command"), dialog);
  });
}

// A click on the backdrop closes; Escape is the browser's own. Focus goes back to the opener by itself.
document.addEventListener("click", (event) => {
  if (event.target instanceof HTMLDialogElement && event.target.matches(".dialog[open]")) {
    const box = event.target.getBoundingClientRect();
    const inside =
      event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom;
    if (!inside && event.clientX + event.clientY > 0) event.target.close();
  }
});
