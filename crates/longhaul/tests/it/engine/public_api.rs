//! The public API of the library, read from its sources and compared with `public-api.txt`, so that a change to it is seen.

mod listing;
mod macros;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::{Attribute, Item};

use self::listing::Listing;
use self::macros::expanded;

/// Set this to write the file instead of comparing it.
const UPDATE: &str = "UPDATE_DOCS";

/// The macro that makes a setter for each field.
const SETTERS: &str = "fluent_setters";

/// A module: its items, without tests, and the modules in it.
struct Module {
    path: String,
    items: Vec<Item>,
    children: BTreeMap<String, Module>,
}

impl Module {
    fn load(file: &Path, path: String) -> Module {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Module::from_items(parsed.items, &folder(file), path)
    }

    fn from_items(items: Vec<Item>, dir: &Path, path: String) -> Module {
        let items = items.into_iter().filter(|item| !is_test(attributes(item)));
        let items: Vec<Item> = items.flat_map(expanded).collect();
        let mut children = BTreeMap::new();
        for item in &items {
            let Item::Mod(module) = item else { continue };
            let name = module.ident.to_string();
            let path = format!("{path}::{name}");
            let child = match &module.content {
                Some((_, items)) => Module::from_items(items.clone(), &dir.join(&name), path),
                None => {
                    let files = [dir.join(format!("{name}.rs")), dir.join(&name).join("mod.rs")];
                    let file = files.iter().find(|file| file.exists());
                    Module::load(file.unwrap_or_else(|| panic!("{path} has no file")), path)
                }
            };
            children.insert(name, child);
        }
        Module { path, items, children }
    }

    /// Every impl of the module and of those in it, by the name of its type.
    fn collect_impls<'a>(&'a self, found: &mut BTreeMap<String, Vec<&'a syn::ItemImpl>>) {
        for item in &self.items {
            if let Item::Impl(one) = item
                && let syn::Type::Path(target) = &*one.self_ty
                && let Some(last) = target.path.segments.last()
            {
                found.entry(last.ident.to_string()).or_default().push(one);
            }
        }
        self.children.values().for_each(|child| child.collect_impls(found));
    }

    /// The fields that have setters, by the name of their type.
    fn collect_setters(&self, found: &mut BTreeMap<String, String>) {
        for item in &self.items {
            if let Item::Macro(one) = item
                && one.mac.path.is_ident(SETTERS)
            {
                let tokens = without_docs(&tidy(&one.mac.tokens));
                let (name, fields) = tokens.split_once(" {").unwrap();
                found.insert(name.trim().to_owned(), format!("{{{fields}"));
            }
        }
        self.children.values().for_each(|child| child.collect_setters(found));
    }
}

/// The directory of the modules in a file.
fn folder(file: &Path) -> PathBuf {
    let (dir, stem) = (file.parent().unwrap(), file.file_stem().unwrap());
    if stem == "lib" || stem == "mod" { dir.to_owned() } else { dir.join(stem) }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().filter_map(condition).any(|cfg| cfg == "test" || cfg == "doctest")
}

/// The condition of a `cfg`.
fn condition(attribute: &Attribute) -> Option<String> {
    attribute.path().is_ident("cfg").then(|| attribute.meta.require_list().unwrap().tokens.to_string())
}

/// Code as people write it, without line breaks.
fn tidy(tokens: &impl ToTokens) -> String {
    spaced(&tokens.to_token_stream().to_string())
}

fn spaced(code: &str) -> String {
    let mut text = code.split_whitespace().collect::<Vec<_>>().join(" ");
    for (from, to) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" < ", "<"),
        ("< ", "<"),
        (" <", "<"),
        (" > ", "> "),
        (" >", ">"),
        (" ,", ","),
        ("& ", "&"),
        ("( ", "("),
        (" (", "("),
        (" )", ")"),
        (" :", ":"),
        (" ;", ";"),
        ("->(", "-> ("),
        (",(", ", ("),
        ("=(", "= ("),
        ("+(", "+ ("),
        (",>", ">"),
        (",)", ")"),
    ] {
        text = text.replace(from, to);
    }
    text
}

fn without_docs(code: &str) -> String {
    let mut text = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("# [doc =") {
        text += &rest[..at];
        // A doc comment is a string literal; the bracket after it ends the attribute.
        rest = rest[at..]
            .split_once("\"]")
            .or_else(|| rest[at..].split_once("\" ]"))
            .map_or("", |(_, rest)| rest);
    }
    text += rest;
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn listing() -> String {
    let root = Module::load(&crate_dir().join("src/lib.rs"), "longhaul".to_owned());
    let mut text =
        "# The public API of the library, from its sources. A test compares it; UPDATE_DOCS=1 writes it:\n\
                    #   UPDATE_DOCS=1 cargo test -p longhaul --test it public_api\n"
            .to_owned();
    for line in Listing::new(&root).lines {
        text += &line;
        text.push('\n');
    }
    text
}

#[test]
fn the_public_api_is_the_one_that_is_committed() {
    let (file, now) = (crate_dir().join("public-api.txt"), listing());
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&file, &now).unwrap();
        return;
    }
    let before = fs::read_to_string(&file).unwrap_or_default();
    if before == now {
        return;
    }
    let (old, new): (BTreeSet<&str>, BTreeSet<&str>) = (before.lines().collect(), now.lines().collect());
    let gone: String = old.difference(&new).map(|line| format!("- {line}\n")).collect();
    let come: String = new.difference(&old).map(|line| format!("+ {line}\n")).collect();
    panic!(
        "the public API has changed:\n{gone}{come}If that is intended, say so in CHANGELOG.md and update the listing:\n  {UPDATE}=1 \
         cargo test -p longhaul --test it public_api\n"
    );
}

/// A channel in a signature makes how things are done inside a promise.
#[test]
fn no_channel_is_public() {
    let listing = listing();
    assert!(listing.lines().count() > 500, "that is not all");
    for line in listing.lines() {
        for channel in ["mpsc", "oneshot", "watch::", "broadcast::", "UnboundedReceiver", "UnboundedSender"] {
            assert!(!line.contains(channel), "{line}");
        }
    }
}
