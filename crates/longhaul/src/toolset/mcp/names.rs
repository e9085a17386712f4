//! Names that every provider takes: letters, digits, `_` and `-`, not more than 64, and none of them twice.

use std::collections::HashSet;

use crate::id::Digest;

/// No provider takes a longer one.
const LONGEST: usize = 64;

/// The names under which a model calls these tools, in their order.
pub(super) fn mapped<'a>(prefix: Option<&str>, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    let mut free = |name: &str| {
        let whole = match prefix {
            Some(prefix) => format!("{prefix}_{name}"),
            None => name.to_owned(),
        };
        let plain = plain(&whole);
        let marked = || marked(&plain, &whole);
        let chosen =
            if plain.len() <= LONGEST && taken.insert(plain.clone()) { plain.clone() } else { marked() };
        taken.insert(chosen.clone());
        chosen
    };
    names.into_iter().map(&mut free).collect()
}

fn plain(name: &str) -> String {
    let takes = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut plain: String = name.chars().map(|c| if takes(c) { c } else { '_' }).collect();
    // Some want a letter at the beginning.
    if !plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        plain.insert(0, '_');
    }
    plain
}

/// As much of the name as there is room for, and a mark that is this name's only.
fn marked(plain: &str, whole: &str) -> String {
    let digest = Digest::of(whole.as_bytes());
    format!("{}_{}", &plain[..plain.len().min(LONGEST - 9)], &digest.as_str()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_provider_takes_is_left_as_it_is() {
        assert_eq!(mapped(None, ["read_file", "get-sum", "X9"]), ["read_file", "get-sum", "X9"]);
        assert_eq!(mapped(Some("fs"), ["read_file"]), ["fs_read_file"]);
    }

    #[test]
    fn what_one_would_refuse_is_made_into_something_it_takes() {
        let long = "x".repeat(100);
        let names = ["a.b/c", "a b", "9lives", "größe", "", long.as_str(), "a_b", "a.b"];
        let mapped = mapped(None, names);
        for name in &mapped {
            assert!((1..=64).contains(&name.len()), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{name}");
            assert!(!name.starts_with(|c: char| c.is_ascii_digit() || c == '-'), "{name}");
        }
        assert_eq!(mapped[..4], ["a_b_c", "a_b", "_9lives", "gr__e"]);
        let different: HashSet<_> = mapped.iter().collect();
        assert_eq!(different.len(), names.len(), "{mapped:?}");
    }

    #[test]
    fn a_name_is_mapped_in_the_same_way_each_time() {
        let long = "y".repeat(70);
        assert_eq!(mapped(Some("p"), [long.as_str()]), mapped(Some("p"), [long.as_str()]));
    }
}
