// Makes a button of every column head of a sortable table. Numbers are compared by
// `data-value`, words as a reader would (v2 before v10); an empty `data-value` is no
// number and stays at the end.
(() => {
  const words = new Intl.Collator(undefined, {numeric: true}).compare;
  const key = (cell) => {
    const value = cell.dataset.value;
    if (value === undefined) return cell.textContent;
    return value === "" ? null : Number(value);
  };
  const order = (a, b) => (typeof a === "number" ? a - b : words(a, b));
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const other = {ascending: "descending", descending: "ascending"};
        const next = other[head.getAttribute("aria-sort")] || head.dataset.first;
        for (const each of heads) each.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", next);
        const sign = next === "ascending" ? 1 : -1;
        const rows = [...body.rows].map((row) => [key(row.cells[column]), row]);
        rows.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          return sign * order(a, b);
        });
        for (const [, row] of rows) body.append(row);
      });
    });
  }
})();
