//! The public API of the library, read from its sources and compared with `public-api.txt`, so that a change to it is seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::parse::{Parse as _, ParseStream, Parser as _};
use syn::{Attribute, Fields, Item, UseTree, Visibility};

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

/// The items that a macro of the crate declares; any other item as it is.
fn expanded(item: Item) -> Vec<Item> {
    let Item::Macro(one) = &item else { return vec![item] };
    let tokens = one.mac.tokens.clone();
    if one.ident.is_none() && one.mac.path.is_ident("team_config") {
        vec![team_config.parse2(tokens).unwrap()]
    } else if one.ident.is_none() && one.mac.path.is_ident("toolset_kinds") {
        toolset_kinds.parse2(tokens).unwrap()
    } else if one.ident.is_none() && one.mac.path.is_ident("options") {
        options.parse2(tokens).unwrap()
    } else {
        vec![item]
    }
}

/// Skips up to this many tokens; a group is one.
fn skip(input: ParseStream<'_>, most: usize) -> syn::Result<()> {
    input.step(|cursor| {
        let mut rest = *cursor;
        for _ in 0..most {
            let Some((_, next)) = rest.token_tree() else { break };
            rest = next;
        }
        Ok(((), rest))
    })
}

/// The struct of a `team_config!`.
fn team_config(input: ParseStream<'_>) -> syn::Result<Item> {
    input.call(Attribute::parse_outer)?;
    let name: syn::Ident = input.parse()?;
    let (derives, content);
    syn::bracketed!(derives in input);
    let derives = derives.parse_terminated(syn::Ident::parse, syn::Token![,])?;
    // The table, its names and the keys that it shares.
    while !input.peek(syn::token::Brace) {
        skip(input, 1)?;
    }
    syn::braced!(content in input);
    let (fields, kinds) = defaulted_fields(&content)?;
    skip(input, usize::MAX)?;
    let derives = derives.iter();
    Ok(syn::parse_quote! {
        #[derive(Debug, Clone, Default, PartialEq, #(#derives,)* Deserialize)]
        #[non_exhaustive]
        pub struct #name { #(pub #fields: #kinds),* }
    })
}

/// The struct of an `options!`, its setters and its defaults.
fn options(input: ParseStream<'_>) -> syn::Result<Vec<Item>> {
    let attrs = input.call(Attribute::parse_outer)?;
    skip(input, 2)?;
    let name: syn::Ident = input.parse()?;
    let content;
    syn::braced!(content in input);
    let (fields, kinds) = defaulted_fields(&content)?;
    Ok(vec![
        syn::parse_quote! {
            #(#attrs)*
            #[non_exhaustive]
            pub struct #name { #(pub #fields: #kinds),* }
        },
        syn::parse_quote! { fluent_setters!(#name { #(#fields: #kinds),* }); },
        syn::parse_quote! { impl Default for #name {} },
    ])
}

/// Fields of the form `name: Type = value,`.
fn defaulted_fields(content: ParseStream<'_>) -> syn::Result<(Vec<syn::Ident>, Vec<syn::Type>)> {
    let (mut fields, mut kinds) = (Vec::new(), Vec::new());
    while !content.is_empty() {
        content.call(Attribute::parse_outer)?;
        fields.push(content.parse()?);
        if content.peek(syn::token::Paren) {
            skip(content, 1)?;
        }
        content.parse::<syn::Token![:]>()?;
        kinds.push(content.parse()?);
        content.parse::<syn::Token![=]>()?;
        content.parse::<syn::Expr>()?;
        content.parse::<syn::Token![,]>()?;
    }
    Ok((fields, kinds))
}

/// The enum of `toolset_kinds!`, and its method.
fn toolset_kinds(input: ParseStream<'_>) -> syn::Result<Vec<Item>> {
    let mut variants = Vec::new();
    while !input.is_empty() {
        input.call(Attribute::parse_outer)?;
        input.parse::<syn::LitStr>()?;
        input.parse::<syn::Token![=]>()?;
        variants.push(input.parse::<syn::Variant>()?);
        input.parse::<syn::Token![:]>()?;
        input.parse::<syn::Ident>()?;
        input.parse::<syn::Token![,]>()?;
    }
    Ok(vec![
        syn::parse_quote! {
            #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
            #[non_exhaustive]
            pub enum ToolsetKind { #(#variants,)* Unknown { name: String }, Wrong }
        },
        syn::parse_quote! { impl ToolsetKind { pub fn name(&self) -> &str { "" } } },
    ])
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

/// What attributes say about the API: conditions, `non_exhaustive`, derived traits.
fn marks(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        if attribute.path().is_ident("non_exhaustive") {
            text += " #[non_exhaustive]";
        } else if attribute.path().is_ident("derive") {
            text += &format!(" #[derive({})]", tidy(&attribute.meta.require_list().unwrap().tokens));
        } else if attribute.path().is_ident("deprecated") {
            text += " #[deprecated]";
        } else if let Some(cfg) = condition(attribute) {
            text += &format!(" #[cfg({})]", spaced(&cfg));
        }
    }
    text
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

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The listing, as it grows.
struct Listing<'a> {
    root: &'a Module,
    impls: BTreeMap<String, Vec<&'a syn::ItemImpl>>,
    setters: BTreeMap<String, String>,
    lines: Vec<String>,
    /// Where each item was listed in full, by the module and the name of its definition.
    listed: BTreeMap<(String, String), String>,
}

impl<'a> Listing<'a> {
    fn new(root: &'a Module) -> Listing<'a> {
        let (mut impls, mut setters) = (BTreeMap::new(), BTreeMap::new());
        root.collect_impls(&mut impls);
        root.collect_setters(&mut setters);
        let mut listing = Listing { root, impls, setters, lines: Vec::new(), listed: BTreeMap::new() };
        listing.module(root, &root.path, "");
        listing
    }

    fn module(&mut self, module: &'a Module, path: &str, when: &str) {
        self.lines.push(format!("pub mod {path}{when}"));
        // Modules first: an item is listed in full where it belongs, not where it is exported for convenience.
        for item in &module.items {
            if let Item::Mod(child) = item
                && is_public(&child.vis)
            {
                let (name, when) = (child.ident.to_string(), marks(&child.attrs));
                self.module(&module.children[&name], &format!("{path}::{name}"), &when);
            }
        }
        for item in &module.items {
            match item {
                Item::Use(item) if is_public(&item.vis) => {
                    let when = marks(&item.attrs);
                    self.exports(module, &item.tree, &mut Vec::new(), path, &when);
                }
                Item::Macro(item) if item.mac.path.is_ident(SETTERS) => {}
                Item::Macro(item) if item.ident.is_none() => {
                    let tokens = without_docs(&tidy(&item.mac.tokens));
                    self.lines.push(format!("pub {path}::{{{}! {{ {tokens} }}}}", tidy(&item.mac.path)));
                }
                item => self.item(module, item, path, None, ""),
            }
        }
    }

    /// What a `pub use` exports.
    fn exports(
        &mut self,
        module: &'a Module,
        tree: &UseTree,
        before: &mut Vec<String>,
        path: &str,
        when: &str,
    ) {
        match tree {
            UseTree::Path(part) => {
                before.push(part.ident.to_string());
                self.exports(module, &part.tree, before, path, when);
                before.pop();
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.exports(module, tree, before, path, when));
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.export(module, before, &name, &name, path, when);
            }
            UseTree::Rename(name) => {
                let (name, new) = (name.ident.to_string(), name.rename.to_string());
                self.export(module, before, &name, &new, path, when);
            }
            UseTree::Glob(_) => {
                let Some(from) = self.find(module, before) else {
                    self.lines.push(format!("pub use {path}::* = {}::*{when}", before.join("::")));
                    return;
                };
                for item in &from.items {
                    match item {
                        Item::Use(item) if is_public(&item.vis) => {
                            self.exports(from, &item.tree, &mut Vec::new(), path, when);
                        }
                        Item::Use(_) | Item::Macro(_) => {}
                        item => self.item(from, item, path, None, when),
                    }
                }
            }
        }
    }

    fn export(
        &mut self,
        module: &'a Module,
        before: &[String],
        name: &str,
        new: &str,
        path: &str,
        when: &str,
    ) {
        let from = self.find(module, before);
        let own =
            from.and_then(|from| from.items.iter().find(|item| names(item).is_some_and(|is| is == name)));
        if let (Some(from), Some(item)) = (from, own) {
            return self.item(from, item, path, Some(new), when);
        }
        // Exported there, too, from elsewhere.
        let further = from.and_then(|from| {
            from.items.iter().find_map(|item| match item {
                Item::Use(item) => Some((from, used_path(&item.tree, name)?)),
                _ => None,
            })
        });
        match further {
            Some((from, (before, name))) => self.export(from, &before, &name, new, path, when),
            None => self.lines.push(format!("pub use {path}::{new} = {}::{name}{when}", before.join("::"))),
        }
    }

    /// The module that a path leads to.
    fn find(&self, from: &'a Module, path: &[String]) -> Option<&'a Module> {
        let mut module = from;
        for (index, name) in path.iter().enumerate() {
            module = match name.as_str() {
                "crate" if index == 0 => self.root,
                "self" if index == 0 => module,
                "super" => {
                    let (above, _) = module.path.rsplit_once("::")?;
                    let names: Vec<String> = above.split("::").skip(1).map(str::to_owned).collect();
                    self.find(self.root, &names)?
                }
                name => module.children.get(name)?,
            };
        }
        Some(module)
    }

    /// An item, in full if it was not listed before.
    fn item(&mut self, module: &Module, item: &Item, path: &str, new: Option<&str>, when: &str) {
        let Some(name) = names(item).filter(|_| public_item(item)) else { return };
        let full = format!("{path}::{}", new.unwrap_or(&name));
        let key = (module.path.clone(), name.clone());
        if let Some(listed) = self.listed.get(&key) {
            self.lines.push(format!("pub use {full} = {listed}{when}"));
            return;
        }
        self.listed.insert(key, full.clone());
        let marks = format!("{}{when}", marks(attributes(item)));
        match item {
            Item::Const(item) => self.lines.push(format!("pub const {full}: {}{marks}", tidy(&item.ty))),
            Item::Static(item) => self.lines.push(format!("pub static {full}: {}{marks}", tidy(&item.ty))),
            Item::Type(item) => self.lines.push(format!(
                "pub type {full}{} = {}{marks}",
                tidy(&item.generics),
                tidy(&item.ty)
            )),
            Item::Fn(item) => self.lines.push(format!("pub {}{marks}", signature(&item.sig, &full))),
            Item::Struct(item) => {
                self.lines.push(format!("pub struct {full}{}{marks}", tidy(&item.generics)));
                self.fields(&item.fields, &full, true);
                self.members(&name, &full);
            }
            Item::Enum(item) => {
                self.lines.push(format!("pub enum {full}{}{marks}", tidy(&item.generics)));
                for variant in &item.variants {
                    let named = format!("{full}::{}", variant.ident);
                    let inside = match &variant.fields {
                        Fields::Unnamed(fields) => {
                            let types: Vec<String> =
                                fields.unnamed.iter().map(|field| tidy(&field.ty)).collect();
                            format!("({})", types.join(", "))
                        }
                        _ => String::new(),
                    };
                    self.lines.push(format!("pub {named}{inside}"));
                    if let Fields::Named(_) = &variant.fields {
                        self.fields(&variant.fields, &named, false);
                    }
                }
                self.members(&name, &full);
            }
            Item::Trait(item) => {
                let above = match item.supertraits.is_empty() {
                    true => String::new(),
                    false => format!(": {}", tidy(&item.supertraits)),
                };
                self.lines.push(format!("pub trait {full}{}{above}{marks}", tidy(&item.generics)));
                for inner in &item.items {
                    let line = match inner {
                        syn::TraitItem::Fn(method) => {
                            let given = if method.default.is_some() { " { … }" } else { "" };
                            format!(
                                "{}{given}",
                                signature(&method.sig, &format!("{full}::{}", method.sig.ident))
                            )
                        }
                        syn::TraitItem::Type(kind) => {
                            format!("type {full}::{}: {}", kind.ident, tidy(&kind.bounds))
                        }
                        syn::TraitItem::Const(value) => {
                            format!("const {full}::{}: {}", value.ident, tidy(&value.ty))
                        }
                        _ => continue,
                    };
                    self.lines.push(format!("pub {line}"));
                }
            }
            _ => {}
        }
    }

    fn fields(&mut self, fields: &Fields, path: &str, only_public: bool) {
        for (index, field) in fields.iter().enumerate() {
            if !only_public || is_public(&field.vis) {
                let name = field.ident.as_ref().map_or(index.to_string(), ToString::to_string);
                self.lines.push(format!("pub {path}::{name}: {}{}", tidy(&field.ty), marks(&field.attrs)));
            }
        }
    }

    /// The methods and constants of a type, and the traits that it implements.
    fn members(&mut self, name: &str, path: &str) {
        let mut lines = Vec::new();
        for one in self.impls.get(name).into_iter().flatten() {
            let when = marks(&one.attrs);
            if let Some((_, of, _)) = &one.trait_ {
                let generics = tidy(&one.generics);
                lines.push(format!("impl{generics} {} for {path}{when}", tidy(of)));
                continue;
            }
            for item in &one.items {
                match item {
                    syn::ImplItem::Fn(method) if is_public(&method.vis) && !is_test(&method.attrs) => {
                        let sig = signature(&method.sig, &format!("{path}::{}", method.sig.ident));
                        lines.push(format!("pub {sig}{}{when}", marks(&method.attrs)));
                    }
                    syn::ImplItem::Const(value) if is_public(&value.vis) => {
                        let (name, kind) = (&value.ident, tidy(&value.ty));
                        lines.push(format!("pub const {path}::{name}: {kind}{when}"));
                    }
                    _ => {}
                }
            }
        }
        lines.extend(self.setters.get(name).map(|fields| format!("pub fn {path}::setters {fields}")));
        lines.sort();
        self.lines.extend(lines);
    }
}

/// The path by which a `use` brings a name in, and its name there.
fn used_path(tree: &UseTree, name: &str) -> Option<(Vec<String>, String)> {
    match tree {
        UseTree::Path(part) => {
            let (mut path, found) = used_path(&part.tree, name)?;
            path.insert(0, part.ident.to_string());
            Some((path, found))
        }
        UseTree::Name(one) => (one.ident == name).then(|| (Vec::new(), name.to_owned())),
        UseTree::Rename(one) => (one.rename == name).then(|| (Vec::new(), one.ident.to_string())),
        UseTree::Group(group) => group.items.iter().find_map(|tree| used_path(tree, name)),
        UseTree::Glob(_) => None,
    }
}

fn names(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn public_item(item: &Item) -> bool {
    match item {
        Item::Const(item) => is_public(&item.vis),
        Item::Enum(item) => is_public(&item.vis),
        Item::Fn(item) => is_public(&item.vis),
        Item::Static(item) => is_public(&item.vis),
        Item::Struct(item) => is_public(&item.vis),
        Item::Trait(item) => is_public(&item.vis),
        Item::Type(item) => is_public(&item.vis),
        _ => false,
    }
}

/// A function without its body, with its whole path as its name.
fn signature(sig: &syn::Signature, path: &str) -> String {
    let mut sig = sig.clone();
    sig.inputs.iter_mut().for_each(|input| match input {
        syn::FnArg::Receiver(receiver) => receiver.attrs.clear(),
        syn::FnArg::Typed(typed) => typed.attrs.clear(),
    });
    let text = tidy(&sig);
    let (name, at) = (format!("fn {}", sig.ident), format!("fn {path}"));
    text.replacen(&name, &at, 1)
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
