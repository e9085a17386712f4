//! How many file descriptors this process can still open.

use nix::sys::resource::{Resource, getrlimit};

use super::concurrency_limit::Descriptors;

/// What counts as no limit.
const MANY: usize = 1 << 20;
/// What to assume if the limit is unknown: the smallest default of the usual systems.
const FEW: usize = 256;

/// Counts the descriptors. It reads a directory with one entry for each open one.
pub(super) fn measure() -> Descriptors {
    let limit = getrlimit(Resource::RLIMIT_NOFILE)
        .map_or(FEW, |(soft, _)| usize::try_from(soft).unwrap_or(MANY).min(MANY));
    let listed = ["/proc/self/fd", "/dev/fd"].into_iter().find_map(|dir| std::fs::read_dir(dir).ok());
    // Where they cannot be listed, assume that half are in use.
    let open = listed.map_or(limit / 2, Iterator::count);
    Descriptors { limit, free: limit.saturating_sub(open) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_are_counted() {
        let Descriptors { limit, free } = measure();
        assert!(free > 0 && free < limit && limit <= MANY, "{free} of {limit}");
    }
}
