//! The listing: one line per item of the public API.

use std::collections::BTreeMap;

use syn::{Attribute, Fields, Item, UseTree, Visibility};

use super::{Module, SETTERS, attributes, condition, is_test, spaced, tidy, without_docs};

/// The listing, as it grows.
pub(super) struct Listing<'a> {
    root: &'a Module,
    impls: BTreeMap<String, Vec<&'a syn::ItemImpl>>,
    setters: BTreeMap<String, String>,
    pub(super) lines: Vec<String>,
    /// Where each item was listed in full, by the module and the name of its definition.
    listed: BTreeMap<(String, String), String>,
}

impl<'a> Listing<'a> {
    pub(super) fn new(root: &'a Module) -> Listing<'a> {
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

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
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
