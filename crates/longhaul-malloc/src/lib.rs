//! Limits the memory that glibc's allocator keeps for threads. All other crates of the workspace forbid unsafe code.

/// Lets all threads share so many arenas; glibc makes up to eight for each core. Memory that was freed in one is not used by
/// threads of another, so a program in which tasks move between threads needs much more than it uses.
///
/// Does nothing with another C library, or if the environment says how many the user wants.
pub fn limit_arenas(most: usize) {
    let tunables = std::env::var("GLIBC_TUNABLES").unwrap_or_default();
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() && !tunables.contains("malloc.arena_max") {
        set_arena_max(most);
    }
}

fn set_arena_max(most: usize) {
    let most = i32::try_from(most).unwrap_or(i32::MAX).max(1);
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt takes two numbers and no pointers, and may be called at any time.
    #[expect(unsafe_code)]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, most);
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = most;
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    /// Threads that all allocate would otherwise get an arena each.
    #[test]
    fn threads_share_the_arenas() {
        super::set_arena_max(1);
        // This thread may have one already.
        let before = count_arenas();
        let barrier = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let kept = vec![0_u8; 1000];
                    barrier.wait();
                    drop(kept);
                });
            }
        });
        assert_eq!(count_arenas(), before);
    }

    /// glibc maps 64 MiB of addresses for each arena but the first, and marks what is not used yet as inaccessible.
    fn count_arenas() -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        assert!(!maps.is_empty(), "/proc/self/maps cannot be read");
        maps.lines().filter(|line| is_unused_rest_of_arena(line)).count()
    }

    fn is_unused_rest_of_arena(line: &str) -> bool {
        let mut fields = line.split_whitespace();
        let (Some(range), Some("---p")) = (fields.next(), fields.next()) else { return false };
        let mut ends = range.split('-').filter_map(|end| u64::from_str_radix(end, 16).ok());
        let (Some(from), Some(to)) = (ends.next(), ends.next()) else { return false };
        to - from > 32 << 20
    }
}
