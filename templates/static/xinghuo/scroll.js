/* Whatever scrolls sideways says so: data-more names the sides on which there is more, and the stylesheet fades them. */
"use strict";
(() => {
  const boxes = document.querySelectorAll(".x-scroll, #changelist .results");
  function look(box) {
    const left = Math.abs(box.scrollLeft);
    const sides = [];
    if (left > 2) sides.push("start");
    if (left + box.clientWidth < box.scrollWidth - 2) sides.push("end");
    box.dataset.more = sides.join(" ");
    // A box that scrolls is reached by keyboard, too.
    if (sides.length && !box.hasAttribute("tabindex")) box.tabIndex = 0;
  }
  const sizes = new ResizeObserver((entries) => entries.forEach((entry) => look(entry.target)));
  for (const box of boxes) {
    box.addEventListener("scroll", () => look(box), { passive: true });
    sizes.observe(box);
    look(box);
  }
})();
