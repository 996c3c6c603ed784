// Before the page is drawn: light or dark as in the address (?__theme), as chosen before, or as the system has it.
const asked = new URLSearchParams(location.search).get("__theme");
const dark = asked ?? localStorage.getItem("ccs-theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.documentElement.classList.toggle("dark", dark === "dark");
