// Without scripts everything is shown, one precision below the other; with them, one at a time, and tables sort.
const sections = [...document.querySelectorAll("[data-dtype]")];
const buttons = [...document.querySelectorAll(".tabs button")];
function show(dtype) {
  for (const s of sections) s.hidden = s.dataset.dtype !== dtype;
  for (const b of buttons) b.setAttribute("aria-pressed", String(b.dataset.show === dtype));
}
for (const b of buttons) b.addEventListener("click", () => show(b.dataset.show));
if (buttons.length) {
  document.querySelector(".tabs").hidden = buttons.length < 2;
  show(buttons[0].dataset.show);
}
for (const head of document.querySelectorAll("th[aria-sort]")) {
  const sort = () => {
    const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex;
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const compare = (a, b) => {
      const [x, y] = [value(a), value(b)], [n, m] = [parseFloat(x), parseFloat(y)];
      return isNaN(n) || isNaN(m) ? (isNaN(n) - isNaN(m)) * (down ? -1 : 1) || x.localeCompare(y) : n - m;
    };
    const rows = [...body.rows].sort((a, b) => (down ? -1 : 1) * compare(a, b));
    body.append(...rows);
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); sort(); } });
}
