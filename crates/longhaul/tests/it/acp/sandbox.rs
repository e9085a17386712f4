//! Programs in a sandbox: they write to the task's directory and their home, and nowhere else.

use longhaul::Longhaul;
use longhaul::toolset::Sandbox;

use super::{fake, journal, order, outcome, team, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_program_writes_only_below_its_directory_and_its_home() {
    let sandbox = Sandbox::new().network(true);
    if let Err(why) = sandbox.describe_backend().await {
        println!("skipped: there is no sandbox here: {why}");
        return;
    }
    // Not below /tmp, which is another one in the sandbox.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (work, outside) = (place.path().join("work"), place.path().join("outside"));
    std::fs::create_dir_all(&work).unwrap();
    std::fs::create_dir_all(&outside).unwrap();
    let touch = format!(
        "touch {} {}; touch {}",
        work.join("mine").display(),
        place.path().join("work/home/own").display(),
        outside.join("no").display()
    );
    let program = fake::program_after(&touch, &work, "").sandbox(sandbox);
    let longhaul = Longhaul::builder(team(program)).start().await.unwrap();
    let id = longhaul.submit(order(&work, "tag<one>")).await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    assert_eq!(&**outcome(&journal(&longhaul, id).await).output(), "FOUND[one]");
    assert!(work.join("mine").exists() && work.join("home/own").exists());
    assert!(!outside.join("no").exists(), "it wrote where it may not");
    longhaul.shutdown().await;
    // The id that it has recorded is one of its own name space.
    crate::crash::process::until("the end of the program", || !fake::is_running(&work));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_is_told_in_a_sandbox_too() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let missing = longhaul::agent::AcpAgent::new(["no-such-program-anywhere"], dir.path().join("home"));
    let longhaul =
        Longhaul::builder(team(missing.sandbox(Sandbox::new().network(true)))).start().await.unwrap();
    let id = longhaul.submit(order(dir.path(), "tag<one>")).await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    let end = format!("{:?}", outcome(&journal(&longhaul, id).await));
    assert!(end.contains("was not found"), "{end}");
    longhaul.shutdown().await;
}
