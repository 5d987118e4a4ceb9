// The generator puts each code block's buttons into a landmark without a name, and many of those cannot be told apart.
new MutationObserver(() => {
  document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((nav) => {
    nav.setAttribute("aria-label", `Buttons of ${nav.parentElement.id.replace(/_+/g, " ").trim()}`);
  });
}).observe(document.documentElement, { childList: true, subtree: true });
