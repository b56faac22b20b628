(() => {
  const root = document.documentElement, kept = "lakehouse-theme";
  const read = () => { try { return localStorage.getItem(kept); } catch { return null; } };
  if (read()) root.dataset.theme = read();
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme"), asked = matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.theme || (asked.matches ? "dark" : "light")) === "dark";
    const name = () => { button.textContent = dark() ? "Light colours" : "Dark colours"; };
    button.hidden = false;
    name();
    asked.addEventListener("change", name);
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem(kept, root.dataset.theme); } catch { /* a page from a file may keep nothing */ }
      name();
    });
  });
})();
