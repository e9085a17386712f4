// Longhaul's dashboard.
import "./style.css";
import { effect } from "@preact/signals";
import { render, type JSX } from "preact";
import { signedIn } from "./api";
import { ticking } from "./format";
import { focusQuestion } from "./inbox";
import { Help, helpOpen, listenToKeys } from "./keys";
import { ListPage } from "./list";
import { theme, wantsNotices } from "./memory";
import { NewTask, newTaskOpen } from "./newtask";
import { askToNotify, canNotify, keepTitle } from "./notify";
import { Confirm, Safe, To, Toasts } from "./parts";
import { RunPage } from "./run";
import { age, begin, canRun, connection, loaded, questions, stats, stream } from "./store";
import { listPlace, place } from "./url";

function Top(): JSX.Element {
  const many = questions.value.length;
  const live = connection.value === "live";
  return (
    <header class="top">
      <To place={{ ...listPlace, q: "", group: "", agent: "", ids: "" }} class="brand">
        Longhaul
      </To>
      {many > 0 ? (
        <button
          type="button"
          class="needs"
          onClick={() => {
            focusQuestion();
          }}
        >
          {many} {many === 1 ? "needs" : "need"} you
        </button>
      ) : null}
      <span class="space" />
      <span class={live ? "conn" : "conn off"} role="status">
        <span aria-hidden="true">{live ? "●" : "○"}</span>{" "}
        {live ? "live" : connection.value === "connecting" ? "connecting" : "not connected"}
      </span>
      {canNotify() && !wantsNotices.value ? (
        <button
          type="button"
          class="quiet"
          onClick={() => void askToNotify()}
          aria-label="Notify me"
          title="Tell me when something needs me, while this tab is in the background"
        >
          <span aria-hidden="true">♪</span> <span class="notify-word">Notify me</span>
        </button>
      ) : null}
      <button
        type="button"
        class="quiet"
        aria-label={`Colours: ${theme.value}`}
        title="Light, dark, or as the system says"
        onClick={() => (theme.value = theme.value === "auto" ? "light" : theme.value === "light" ? "dark" : "auto")}
      >
        {theme.value === "auto" ? "◐" : theme.value === "light" ? "☀" : "☾"}
      </button>
      <button type="button" class="quiet" aria-label="Keys" onClick={() => (helpOpen.value = true)}>
        ?
      </button>
      {canRun.value ? (
        <button type="button" class="yes" aria-label="New task" title="N" onClick={() => (newTaskOpen.value = true)}>
          New<span class="new-word"> task</span>
        </button>
      ) : null}
    </header>
  );
}

/** Says at once that what is shown is not current, and how old it is. */
function Outage(): JSX.Element | null {
  if (signedIn.value === false) {
    return (
      <div class="outage" role="alert">
        You are signed out{loaded.value ? ` and see data from ${ticking(age.value)} ago` : ""}. Run <code>longhaul open</code> and follow
        its link; this page goes on by itself then.
      </div>
    );
  }
  if (connection.value !== "lost") return null;
  return (
    <div class="outage" role="alert">
      Connection lost. {loaded.value ? `This is from ${ticking(age.value)} ago. ` : ""}Trying again …{" "}
      <button type="button" class="small" onClick={() => stream.hurry()}>
        Now
      </button>
    </div>
  );
}

function App(): JSX.Element {
  const task = place.value.task;
  return (
    <>
      <Top />
      <Outage />
      <Safe name="the page" key={task ? "run" : "list"}>
        {task ? <RunPage id={task} /> : <ListPage />}
      </Safe>
      <NewTask />
      <Help />
      <Confirm />
      <Toasts />
    </>
  );
}

effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
});
const app = document.getElementById("app");
if (app) {
  app.replaceChildren();
  render(<App />, app);
}
keepTitle();
listenToKeys();
begin();
// For measurements.
Object.assign(window, { longhaul: { stats } });
