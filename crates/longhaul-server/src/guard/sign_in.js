// Turns the one-time code in the fragment into a session. The code leaves the address bar before anything else.
const code = new URLSearchParams(location.hash.slice(1)).get("code");
const status = document.getElementById("status");
if (code) {
  history.replaceState(null, "", "/");
  status.textContent = "Signing in …";
  fetch("/api/v1/session", {
    method: "POST",
    headers: { "content-type": "application/json", "x-longhaul": "1" },
    body: JSON.stringify({ code }),
  })
    .then((answer) => {
      if (answer.ok) {
        // The same address is the dashboard from now on.
        location.reload();
      } else {
        status.textContent = "This link was used before or has expired. Run longhaul open for a new one.";
      }
    })
    .catch(() => {
      status.textContent = "The server does not answer.";
    });
} else if (performance.getEntriesByType("navigation")[0]?.type === "navigate") {
  // A browser keeps its cookie back when a link on another site leads here, but not when this page loads itself.
  location.reload();
}
