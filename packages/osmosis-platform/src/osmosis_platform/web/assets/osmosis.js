// Comforts that every page works without: a secret from the link's fragment into its field, and buttons that copy.
"use strict";

const field = document.querySelector("[data-from-fragment]");
if (field && location.hash.length > 1) {
  field.value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname); // no secret stays in the address bar or the history
  const holder = field.closest("[data-hide-when-filled]");
  if (holder) holder.hidden = true;
  if (field.form.hasAttribute("data-send-when-filled")) field.form.requestSubmit();
  else field.form.querySelector("input:not([type=hidden]):not([data-from-fragment])")?.focus();
}

document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

for (const box of document.querySelectorAll(".command")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", "Copy to the clipboard");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(box.querySelector("pre").innerText.trim());
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(box.querySelector("pre")); // no clipboard here: selected for Ctrl+C
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1600);
  });
  box.classList.add("copyable");
  box.append(button);
}
