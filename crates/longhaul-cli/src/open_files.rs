//! How many files this process may have open: each request in progress needs one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// As many are useful.
const MOST: u64 = 16_384;
/// What to assume if the limit is unknown.
const USUAL: usize = 1_024;

/// Raises the limit as far as that is useful and allowed, and returns it. Systems set it low for programs that cannot handle
/// more, and leave it to the others to raise it.
pub(crate) fn raise_limit() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return USUAL };
    let wanted = hard.min(MOST);
    let raised = wanted > soft && setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok();
    usize::try_from(if raised { wanted } else { soft }).unwrap_or(usize::MAX)
}
