// The page.

const matrix = new Matrix();
const filters = {
  set: (key, value) => matrix.set(key, value),
  only: (indices, text) => matrix.only(indices, text),
  open: (index) => matrix.open(index),
};
const page = document.getElementById("page");
const sections = [head(filters), comparison(filters), problems.length > 0 ? matrix.element : null, familySection(), roofline(matrix),
  html("footer", {}, `Written by kernwright ${data.kernwright} on ${data.made.replace("T", " ").replace("Z", " UTC")}. `,
    "All of it lies in this file; its data is the JSON in the element “data”.")];
page.replaceChildren(html("main", {}, sections.filter(Boolean)));
if (problems.length === 1) matrix.toggle(matrix.rows[0]);
const asked = /^#p(\d+)$/.exec(location.hash);
if (asked && problems[Number(asked[1])]) matrix.open(Number(asked[1]));
