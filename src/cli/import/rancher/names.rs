//! Names: from what people typed to what our resources may be called.
//!
//! Two things never get one name: that would hand one's rights to the other. Where two wish the same, all of them are
//! told apart by what they are, so that the order of the export decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::names::MAX_NAME;

/// What something would like to be called.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Rancher's id, unique among those that are named together.
    pub id: &'a str,
    /// The text to make the name from.
    pub text: &'a str,
    /// What tells it apart from another of the same text, in words; empty: only the id does.
    pub qualifier: &'a str,
}

/// Which characters a name may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grammar {
    /// RFC 1123 label.
    Label,
    /// RFC 1123 subdomain: dots may separate parts.
    Subdomain,
}

/// The names of all, in their order; none of them is `taken`.
pub fn assign(wanted: &[Wanted<'_>], taken: &[&str], grammar: Grammar) -> Vec<String> {
    let plain: Vec<String> = wanted.iter().map(|w| fold(w.text, grammar)).collect();
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for name in &plain {
        *count.entry(name).or_default() += 1;
    }
    let free = |name: &str| !name.is_empty() && count.get(name).is_none_or(|n| *n < 2) && !taken.contains(&name);
    // Whoever has a name of its own keeps it; nobody else's longer one may become it.
    let mut used: BTreeSet<String> = plain.iter().filter(|name| free(name)).cloned().collect();
    used.extend(taken.iter().map(|name| (*name).to_owned()));
    // Two that share text and qualifier are not told apart by it.
    let mut qualified: BTreeMap<String, usize> = BTreeMap::new();
    for (name, w) in plain.iter().zip(wanted) {
        *qualified.entry(join(name, &fold(w.qualifier, grammar))).or_default() += 1;
    }
    let mut names = Vec::with_capacity(wanted.len());
    for (name, w) in plain.iter().zip(wanted) {
        if free(name) {
            names.push(name.clone());
            continue;
        }
        let (qualifier, id) = (fold(w.qualifier, grammar), fold(w.id, Grammar::Label));
        let by_qualifier = join(name, &qualifier);
        let mut chosen = by_qualifier.clone();
        if qualifier.is_empty() || qualified.get(&by_qualifier).is_some_and(|n| *n > 1) || used.contains(&chosen) {
            chosen = join(name, &id);
        }
        let mut number = 2_usize;
        while chosen.is_empty() || used.contains(&chosen) {
            chosen = join(&join(name, &id), &number.to_string());
            number += 1;
        }
        used.insert(chosen.clone());
        names.push(chosen);
    }
    names
}

/// `name-suffix`, with the name cut so that both fit.
fn join(name: &str, suffix: &str) -> String {
    let suffix = cut(suffix, MAX_NAME);
    if name.is_empty() || suffix.is_empty() || suffix.len() + 2 > MAX_NAME {
        return if suffix.is_empty() { name.to_owned() } else { suffix.to_owned() };
    }
    format!("{}-{suffix}", cut(name, MAX_NAME - suffix.len() - 1))
}

fn cut(name: &str, most: usize) -> &str {
    // Folded names are ASCII.
    name.get(..most).unwrap_or(name).trim_end_matches(['-', '.'])
}

/// The text in lower case, everything else than letters, digits (and dots, where they may stand) made one `-`.
pub fn fold(text: &str, grammar: Grammar) -> String {
    let mut name = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        let ends_part = name.is_empty() || name.ends_with(['-', '.']);
        match c {
            'a'..='z' | '0'..='9' => name.push(c),
            '.' if grammar == Grammar::Subdomain && !ends_part => name.push('.'),
            _ if !ends_part => name.push('-'),
            _ => {}
        }
        if name.len() > MAX_NAME {
            break;
        }
    }
    cut(&name, MAX_NAME).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::names::{check_label, check_subdomain};

    fn named(wanted: &[(&str, &str, &str)], taken: &[&str]) -> Vec<String> {
        let wanted: Vec<_> = wanted.iter().map(|(id, text, qualifier)| Wanted { id, text, qualifier }).collect();
        assign(&wanted, taken, Grammar::Label)
    }

    #[test]
    fn folding() {
        for (text, label, subdomain) in [
            ("Shop Web", "shop-web", "shop-web"),
            ("  --Shop__Web!! ", "shop-web", "shop-web"),
            ("Jane.Doe", "jane-doe", "jane.doe"),
            ("a.-b", "a-b", "a.b"),
            ("..a..", "a", "a"),
            ("Größe", "gr-e", "gr-e"),
            ("ѕhор", "h", "h"),
            ("日本", "", ""),
            ("", "", ""),
        ] {
            assert_eq!(fold(text, Grammar::Label), label, "{text}");
            assert_eq!(fold(text, Grammar::Subdomain), subdomain, "{text}");
        }
        assert_eq!(fold(&"x".repeat(200), Grammar::Label).len(), MAX_NAME);
    }

    #[test]
    fn equal_wishes_are_told_apart_whatever_their_order() {
        let one = named(&[("p-1", "Shop", "east"), ("p-2", "shop", "west"), ("p-3", "cart", "east")], &[]);
        assert_eq!(one, ["shop-east", "shop-west", "cart"]);
        let other = named(&[("p-3", "cart", "east"), ("p-2", "shop", "west"), ("p-1", "Shop", "east")], &[]);
        assert_eq!(other, ["cart", "shop-west", "shop-east"]);
        // One cluster has both: only the ids differ.
        assert_eq!(named(&[("p-1", "Shop", "east"), ("p-2", "SHOP", "east")], &[]), ["shop-p-1", "shop-p-2"]);
        // Somebody is really called so already.
        assert_eq!(
            named(&[("p-1", "shop", "east"), ("p-2", "shop", "west"), ("p-3", "shop-east", "east")], &[]),
            ["shop-p-1", "shop-west", "shop-east"]
        );
    }

    #[test]
    fn reserved_and_empty_ones_get_their_ids() {
        assert_eq!(named(&[("u-1", "admin", ""), ("u-2", "日本", "")], &["admin"]), ["admin-u-1", "u-2"]);
    }

    proptest::proptest! {
        #[test]
        fn names_are_legal_and_distinct(
            texts in proptest::collection::vec(("[-.a-cA-C ä]{0,4}|[a-b]{60,70}", "[a-b.]{0,2}|[a-b]{62,64}"), 0..12)
        ) {
            let ids: Vec<String> = (0..texts.len()).map(|at| format!("u-{at}")).collect();
            let wanted: Vec<Wanted<'_>> = texts
                .iter()
                .zip(&ids)
                .map(|((text, qualifier), id)| Wanted { id, text, qualifier })
                .collect();
            for grammar in [Grammar::Label, Grammar::Subdomain] {
                let names = assign(&wanted, &["a", "b-u-1", "u-2"], grammar);
                let distinct: BTreeSet<&String> = names.iter().collect();
                proptest::prop_assert_eq!(distinct.len(), texts.len());
                for name in &names {
                    let legal = match grammar {
                        Grammar::Label => check_label(name),
                        Grammar::Subdomain => check_subdomain(name),
                    };
                    proptest::prop_assert!(legal.is_ok() && !["a", "b-u-1", "u-2"].contains(&name.as_str()), "{}", name);
                }
            }
        }
    }
}
