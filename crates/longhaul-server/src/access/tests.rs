//! Tokens, codes and sessions.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn dir() -> (tempfile::TempDir, AccessDir) {
    let temp = tempfile::tempdir().unwrap();
    let dir = AccessDir::in_data_dir(temp.path());
    (temp, dir)
}

#[test]
fn only_the_owner_reads_tokens_and_no_token_is_kept_in_the_list() {
    let (_temp, dir) = dir();
    let file = dir.ensure_first_token().unwrap().unwrap();
    let first = std::fs::read_to_string(&file).unwrap();
    let more = dir.create("ci", Scope::Read).unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(dir.path()), 0o700);
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    let list = std::fs::read_to_string(dir.path().join("tokens.json")).unwrap();
    assert!(!list.contains(first.trim()) && !list.contains(&more.secret), "{list}");
    assert_eq!(dir.ensure_first_token().unwrap(), Some(file), "a second start keeps the first token");
    let names: Vec<_> = dir.list().unwrap().into_iter().map(|token| (token.name, token.scope)).collect();
    assert_eq!(names, [("default".to_owned(), Scope::Admin), ("ci".to_owned(), Scope::Read)]);
}

#[test]
fn a_revoked_token_is_refused_at_once_and_its_streams_end() {
    let (_temp, dir) = dir();
    dir.ensure_first_token().unwrap();
    let (ci, other) = (dir.create("ci", Scope::Run).unwrap(), dir.create("other", Scope::Read).unwrap());
    let control = AccessControl::open(dir.clone()).unwrap();
    let access = control.check_token(&ci.secret).unwrap();
    let stays = control.check_token(&other.secret).unwrap();
    assert_eq!((&*access.token, access.scope), ("ci", Scope::Run));
    dir.revoke("ci").unwrap();
    assert!(control.check_token(&ci.secret).is_none());
    assert!(access.revoked.is_cancelled() && !stays.revoked.is_cancelled());
    // The same name is another token.
    let again = dir.create("ci", Scope::Run).unwrap();
    assert!(control.check_token(&ci.secret).is_none() && control.check_token(&again.secret).is_some());
    assert!(matches!(dir.revoke("nobody"), Err(AccessError::Unknown { .. })));
}

#[test]
fn revoking_the_first_token_removes_its_file() {
    let (_temp, dir) = dir();
    let file = dir.ensure_first_token().unwrap().unwrap();
    dir.create("ci", Scope::Run).unwrap();
    dir.revoke(DEFAULT_TOKEN).unwrap();
    assert!(!file.exists());
    assert_eq!(dir.ensure_first_token().unwrap(), None, "it is not created again behind the owner's back");
}

#[test]
fn a_token_file_that_others_can_read_or_that_is_damaged_lets_nobody_in() {
    let (_temp, dir) = dir();
    let token = dir.create("ci", Scope::Run).unwrap();
    let control = AccessControl::open(dir.clone()).unwrap();
    let file = dir.path().join("tokens.json");
    for mode in [0o644, 0o660] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(control.check_token(&token.secret).is_none(), "{mode:o}");
        assert!(matches!(AccessControl::open(dir.clone()), Err(AccessError::NotPrivate { .. })));
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(control.check_token(&token.secret).is_some());
    std::fs::write(&file, "{").unwrap();
    assert!(control.check_token(&token.secret).is_none());
    std::fs::remove_file(&file).unwrap();
    assert!(control.check_token(&token.secret).is_none());
}

#[test]
fn a_code_is_valid_once_and_only_with_its_token() {
    let (_temp, dir) = dir();
    dir.ensure_first_token().unwrap();
    dir.create("phone", Scope::Read).unwrap();
    let control = AccessControl::open(dir.clone()).unwrap();
    let code = dir.create_code("phone").unwrap();
    let (session, access) = control.sign_in(&code).unwrap();
    assert_eq!((&*access.token, access.scope), ("phone", Scope::Read));
    assert!(control.sign_in(&code).is_none(), "used");
    assert!(control.check_session(&session).is_some() && control.check_token(&session).is_none());
    assert!(control.sign_in("../tokens.json").is_none() && control.sign_in("").is_none());
    let late = dir.create_code("phone").unwrap();
    dir.revoke("phone").unwrap();
    assert!(control.sign_in(&late).is_none(), "its token is gone");
    assert!(control.check_session(&session).is_none() && access.revoked.is_cancelled());
    assert!(dir.create_code("phone").is_err());
}

#[test]
fn a_code_expires() {
    let (_temp, dir) = dir();
    dir.ensure_first_token().unwrap();
    let control = AccessControl::open(dir.clone()).unwrap();
    let code = dir.create_code(DEFAULT_TOKEN).unwrap();
    let file = std::fs::read_dir(dir.path().join("codes")).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(&code) && !file.display().to_string().contains(&code));
    std::fs::write(&file, r#"{"token":"default","expires":"2020-01-01T00:00:00Z"}"#).unwrap();
    assert!(control.sign_in(&code).is_none());
}

#[test]
fn a_session_can_be_ended() {
    let (_temp, dir) = dir();
    dir.ensure_first_token().unwrap();
    let control = AccessControl::open(dir.clone()).unwrap();
    let (session, access) = control.sign_in(&dir.create_code(DEFAULT_TOKEN).unwrap()).unwrap();
    control.sign_out(&session);
    assert!(control.check_session(&session).is_none() && access.revoked.is_cancelled());
}

#[test]
fn a_session_survives_a_restart_until_it_or_its_token_ends() {
    let (_temp, dir) = dir();
    dir.ensure_first_token().unwrap();
    dir.create("phone", Scope::Read).unwrap();
    let control = AccessControl::open(dir.clone()).unwrap();
    let sign_in = |token: &str| control.sign_in(&dir.create_code(token).unwrap()).unwrap().0;
    let (stays, out, phone) = (sign_in(DEFAULT_TOKEN), sign_in(DEFAULT_TOKEN), sign_in("phone"));
    control.sign_out(&out);
    let file = dir.path().join("sessions.json");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(&stays) && !text.contains(&phone), "only digests are kept: {text}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    drop(control);

    let again = AccessControl::open(dir.clone()).unwrap();
    let access = again.check_session(&stays).unwrap();
    assert_eq!((&*access.token, access.scope), (DEFAULT_TOKEN, Scope::Admin));
    assert_eq!(again.check_session(&phone).unwrap().scope, Scope::Read);
    assert!(again.check_session(&out).is_none(), "signed out before");
    drop(again);

    // Revoked while no server runs; a new token of that name is another one.
    dir.revoke("phone").unwrap();
    assert!(std::fs::read_to_string(&file).unwrap().len() < text.len());
    std::fs::write(&file, &text).unwrap();
    dir.create("phone", Scope::Admin).unwrap();
    let last = AccessControl::open(dir.clone()).unwrap();
    assert!(last.check_session(&phone).is_none() && last.check_session(&stays).is_some());

    // Two servers of one directory agree: signing out at one ends the streams of the other.
    let beside = AccessControl::open(dir.clone()).unwrap();
    let access = beside.check_session(&stays).unwrap();
    last.sign_out(&stays);
    assert!(beside.check_session(&stays).is_none() && access.revoked.is_cancelled());
}

#[test]
fn a_file_of_sessions_that_is_old_damaged_or_not_private_signs_nobody_in() {
    let (_temp, dir) = dir();
    dir.ensure_first_token().unwrap();
    let control = AccessControl::open(dir.clone()).unwrap();
    let (session, access) = control.sign_in(&dir.create_code(DEFAULT_TOKEN).unwrap()).unwrap();
    let file = dir.path().join("sessions.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let at = text.find("\"expires\": \"").unwrap() + 12;
    for year in ["2020", "2999"] {
        std::fs::write(&file, format!("{}{year}{}", &text[..at], &text[at + 4..])).unwrap();
        assert!(AccessControl::open(dir.clone()).unwrap().check_session(&session).is_none(), "{year}");
    }
    std::fs::write(&file, &text).unwrap();
    assert!(AccessControl::open(dir.clone()).unwrap().check_session(&session).is_some());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(AccessControl::open(dir.clone()).unwrap().check_session(&session).is_none());
    assert!(control.check_session(&session).is_none() && access.revoked.is_cancelled());
    for wrong in [
        "{",
        "{\"sessions\": [{\"sha256\": \"x\", \"token_sha256\": \"\", \"expires\": \"2020-01-01T00:00:00Z\"}]}",
    ] {
        std::fs::write(&file, wrong).unwrap();
        assert!(AccessControl::open(dir.clone()).unwrap().check_session(&session).is_none());
        // Whoever signs in next gets a file that is right.
        let (next, _) = control.sign_in(&dir.create_code(DEFAULT_TOKEN).unwrap()).unwrap();
        assert!(AccessControl::open(dir.clone()).unwrap().check_session(&next).is_some());
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn the_oldest_session_ends_when_there_are_too_many() {
    let (_temp, dir) = dir();
    dir.ensure_first_token().unwrap();
    let control = AccessControl::open(dir.clone()).unwrap();
    let sign_in = || control.sign_in(&dir.create_code(DEFAULT_TOKEN).unwrap()).unwrap();
    let (first, access) = sign_in();
    let (second, _) = sign_in();
    (0..99).for_each(|_| drop(sign_in()));
    assert!(control.check_session(&first).is_none() && access.revoked.is_cancelled());
    assert!(control.check_session(&second).is_some());
}

#[test]
fn names_of_tokens_are_plain() {
    let (_temp, dir) = dir();
    for name in ["", "a b", "../x", "ü", &"x".repeat(65)] {
        assert!(matches!(dir.create(name, Scope::Read), Err(AccessError::BadName(_))), "{name}");
    }
    dir.create("a-b_c.1", Scope::Read).unwrap();
    assert!(matches!(dir.create("a-b_c.1", Scope::Run), Err(AccessError::NameTaken(_))));
}
