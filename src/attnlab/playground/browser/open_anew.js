// The connection is lost, and with it the page's session. What it showed is in its address: open that
// anew as soon as the server answers. (Classes too long for an address would be lost; then it stays.)
const PAUSE = 1000; // ms
const ask = () => {
  fetch("favicon.ico", { cache: "no-store" })
    .then(() => location.reload(), () => setTimeout(ask, PAUSE));
};
if (location.search) setTimeout(ask, PAUSE);
