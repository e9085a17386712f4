//! Globs: `*`, `?`, `[a-z]` and `\`, matched in time proportional to the text for any glob.

/// Lower-cases a text character by character. Other methods lower-case a letter by its neighbours, as with a
/// sigma at the end of a word; this one does not, so the parts of a text are the parts of its lower-cased
/// form.
pub(super) fn lowercase(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).map(|c| if c == 'ς' { 'σ' } else { c }).collect()
}

/// A part of a glob.
#[derive(Debug, Clone, PartialEq, Eq)]
enum GlobToken {
    /// This character.
    Char(char),
    /// Any character.
    One,
    /// Any characters, or none.
    Many,
    /// One of these characters, or none of them.
    Class { not: bool, ranges: Vec<(char, char)> },
}

/// Why a text is not a glob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct GlobError(&'static str);

/// A glob, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    tokens: Vec<GlobToken>,
}

impl Glob {
    pub(super) fn parse(text: &str) -> Result<Glob, GlobError> {
        let lower = lowercase(text);
        let mut rest = lower.chars().peekable();
        let mut tokens: Vec<GlobToken> = Vec::new();
        while let Some(c) = rest.next() {
            match c {
                '*' if tokens.last() == Some(&GlobToken::Many) => {}
                '*' => tokens.push(GlobToken::Many),
                '?' => tokens.push(GlobToken::One),
                '[' => tokens.push(class(&mut rest)?),
                '\\' => match rest.next() {
                    Some(c) => tokens.push(GlobToken::Char(c)),
                    None => {
                        return Err(GlobError("it ends in a single '\\': write '\\\\' for the character"));
                    }
                },
                c => tokens.push(GlobToken::Char(c)),
            }
        }
        Ok(Glob { tokens })
    }

    /// Whether it matches a lower-case text. Wildcards match no character in `never`.
    pub(super) fn matches(&self, text: &str, never: &[char]) -> bool {
        // Tracks all positions of the glob at once, so no text causes backtracking.
        let mut here = GlobPositions::new(self.tokens.len() + 1);
        let mut next = GlobPositions::new(self.tokens.len() + 1);
        self.enter(&mut here, 0);
        text.chars().all(|c| self.step(&mut here, &mut next, c, never.contains(&c)))
            && here.has(self.tokens.len())
    }

    /// Moves all positions over a character. Returns whether any are left.
    fn step(&self, here: &mut GlobPositions, next: &mut GlobPositions, c: char, kept: bool) -> bool {
        next.clear();
        for &place in &here.list {
            match self.tokens.get(place) {
                Some(GlobToken::Many) if !kept => self.enter(next, place),
                Some(token) if token.accepts(c, kept) => self.enter(next, place + 1),
                _ => {}
            }
        }
        std::mem::swap(here, next);
        !here.list.is_empty()
    }

    /// Enters a position, and the one after it if this one may match nothing.
    fn enter(&self, places: &mut GlobPositions, mut place: usize) {
        while places.add(place) && self.tokens.get(place) == Some(&GlobToken::Many) {
            place += 1;
        }
    }

    /// Whether it matches any text that these parts could form, where `None` could be anything; in lower
    /// case.
    pub(super) fn could_match(&self, parts: &[Option<&str>]) -> bool {
        let mut here = GlobPositions::new(self.tokens.len() + 1);
        let mut next = GlobPositions::new(self.tokens.len() + 1);
        self.enter(&mut here, 0);
        for part in parts {
            let Some(text) = part else {
                // An unknown part may match whatever comes next in the glob.
                let first = here.list.iter().copied().min().unwrap_or(self.tokens.len());
                for place in first..=self.tokens.len() {
                    here.add(place);
                }
                continue;
            };
            if !text.chars().all(|c| self.step(&mut here, &mut next, c, false)) {
                return false;
            }
        }
        here.has(self.tokens.len())
    }

    /// Whether it matches more than one text.
    pub(super) fn is_wild(&self) -> bool {
        self.tokens.iter().any(|token| !matches!(token, GlobToken::Char(_)))
    }

    pub(super) fn contains_literal(&self, text: &str) -> bool {
        let wanted: Vec<GlobToken> = text.chars().map(GlobToken::Char).collect();
        self.tokens.windows(wanted.len()).any(|part| part == wanted)
    }
}

impl GlobToken {
    fn accepts(&self, c: char, kept: bool) -> bool {
        match self {
            GlobToken::Char(own) => *own == c,
            GlobToken::One => !kept,
            GlobToken::Many => false,
            GlobToken::Class { not, ranges } => {
                !kept && *not != ranges.iter().any(|(from, to)| (*from..=*to).contains(&c))
            }
        }
    }
}

/// The rest of a class, after its `[`.
fn class(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<GlobToken, GlobError> {
    let open = || GlobError("it has a '[' without its ']': write '\\[' for the character");
    let not = rest.next_if(|c| matches!(c, '^' | '!')).is_some();
    let mut ranges: Vec<(char, char)> = Vec::new();
    loop {
        let from = match rest.next().ok_or_else(open)? {
            ']' if !ranges.is_empty() => return Ok(GlobToken::Class { not, ranges }),
            '\\' => rest.next().ok_or_else(open)?,
            c => c,
        };
        if rest.peek() != Some(&'-') {
            ranges.push((from, from));
            continue;
        }
        rest.next();
        match rest.next().ok_or_else(open)? {
            // A `-` at the end stands for itself.
            ']' => {
                ranges.extend([(from, from), ('-', '-')]);
                return Ok(GlobToken::Class { not, ranges });
            }
            '\\' => ranges.push((from, rest.next().ok_or_else(open)?)),
            to => ranges.push((from, to)),
        }
    }
}

/// A set of positions, in insertion order.
struct GlobPositions {
    list: Vec<usize>,
    has: Vec<bool>,
}

impl GlobPositions {
    fn new(count: usize) -> Self {
        GlobPositions { list: Vec::with_capacity(count), has: vec![false; count] }
    }

    /// Returns true if it was not in the set yet.
    fn add(&mut self, place: usize) -> bool {
        match self.has.get_mut(place) {
            Some(has) if !*has => {
                *has = true;
                self.list.push(place);
                true
            }
            _ => false,
        }
    }

    fn has(&self, place: usize) -> bool {
        self.has.get(place).copied().unwrap_or_default()
    }

    fn clear(&mut self) {
        for place in self.list.drain(..) {
            self.has[place] = false;
        }
    }
}
