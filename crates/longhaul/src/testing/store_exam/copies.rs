//! Questions about copies: a store in another is the same store, and no worker runs its tasks.

use std::time::Duration;

use super::StoreFactory;
use super::setup::{ExamSetup, claim, completed, edit, ids, letter, owner, replied, submission};
use crate::entry::{CallResult, Entry, TeamRef};
use crate::id::{Attempt, CallId, WorkerId};
use crate::store::{Fence, StoreError, TaskFilter, copy_store};
use crate::task::Status;

/// Journals with their times, blobs and stored values are in the copy; a running task is pending there, and is
/// claimed and written to as any other.
pub async fn a_store_is_copied_whole(make: StoreFactory<'_>) {
    let (from, to) = (ExamSetup::new(make), ExamSetup::new(make));
    let file = from.store.put_blob(b"a team file".to_vec()).await.unwrap();
    let output = from.store.put_blob(b"a long output".to_vec()).await.unwrap();
    let unused = from.store.put_blob(b"nobody needs this".to_vec()).await.unwrap();
    let root = from.fresh_id();
    let of_file = edit(submission(root), |submitted| submitted.team = TeamRef::File(file.clone()));
    from.submit(root, of_file).await.unwrap();
    let ended = from.running().await;
    from.clock.advance(Duration::from_secs(5));
    let mut result = CallResult::new(CallId { turn: 0, index: 0 }, "short");
    result.whole = Some(output.clone());
    let call = Entry::Called {
        call: result.call,
        tool: "t".into(),
        arguments: None,
        effects: false,
        foreign: false,
    };
    let returned = Entry::Returned(Box::new(result));
    from.write(ended, owner(1), vec![replied("x"), call, returned, completed()]).await.unwrap();
    let running = from.running().await;
    from.write(running, Fence::Anyone, vec![letter("kept")]).await.unwrap();
    let name = format!("todo:{ended}");
    assert!(from.store.put_stored_value(&name, 0, b"list".to_vec()).await.unwrap());
    assert!(from.store.put_stored_value("pins", 0, b"\0".to_vec()).await.unwrap());

    to.clock.advance(Duration::from_secs(1000));
    let copied = copy_store(&*from.store, &*to.store, |_| ()).await.unwrap();
    assert_eq!((copied.tasks, copied.blobs, copied.values, copied.released), (3, 2, 2, 1));
    for id in [root, ended] {
        assert_eq!(to.journal(id).await, from.journal(id).await, "with the times");
        assert_eq!(to.state(id).await, from.state(id).await);
    }
    let (journal, before) = (to.journal(running).await, from.journal(running).await);
    assert_eq!(journal[..before.len()], before);
    assert_eq!(journal.len(), before.len() + 1);
    let state = to.state(running).await;
    assert_eq!((state.status, state.worker, state.attempt), (Status::Pending, None, Attempt(1)));
    assert_eq!(ids(&to.store.list(TaskFilter::default()).await.unwrap()), [root, ended, running]);
    assert_eq!(to.store.blob(output).await.unwrap().as_deref(), Some(&b"a long output"[..]));
    assert_eq!(to.store.blob(file).await.unwrap().as_deref(), Some(&b"a team file"[..]));
    assert_eq!(to.store.blob(unused).await.unwrap(), None);
    assert_eq!(to.store.stored_value("pins").await.unwrap().bytes, b"\0");
    assert_eq!(to.store.stored_value(&name).await.unwrap().bytes, b"list");

    // It goes on there.
    to.store.renew_lease(WorkerId::from("v"), Duration::from_secs(30)).await.unwrap();
    assert_eq!(ids(&to.claim(claim("v", 9)).await.unwrap()), [running]);
    let end = to.state(running).await.seq;
    let again = to.write(running, Fence::Anyone, vec![letter("kept")]).await.unwrap();
    assert_eq!(again, end, "a letter is taken once, also after a copy");
    to.write(running, owner(2), vec![completed()]).await.unwrap();
    let end = to.state(ended).await.seq;
    to.store.delete(vec![(ended, end)]).await.unwrap();
    assert_eq!(to.store.stored_value(&name).await.unwrap().version, 0, "it goes with its task");

    let refused = copy_store(&*from.store, &*to.store, |_| ()).await;
    assert!(matches!(refused, Err(StoreError::Database { .. })), "{refused:?}");
    let twice = to.store.import_journals(vec![(root, from.journal(root).await)]).await;
    assert!(matches!(twice, Err(StoreError::Exists(id)) if id == root), "{twice:?}");
    let fresh = to.fresh_id();
    let wrong = to.store.import_journals(vec![(fresh, from.journal(ended).await[1..].to_vec())]).await;
    assert!(wrong.is_err(), "a journal begins with its submission");
}
