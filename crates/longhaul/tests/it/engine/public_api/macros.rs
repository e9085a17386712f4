//! The items that the crate's own macros declare.

use syn::parse::{Parse as _, ParseStream, Parser as _};
use syn::{Attribute, Item};

/// The items that a macro of the crate declares; any other item as it is.
pub(super) fn expanded(item: Item) -> Vec<Item> {
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
