//! Lists and watches across namespaces, with hostile clients, hostile clusters, and rights that end on the way.

#[path = "across/asked.rs"]
mod asked;
#[path = "across/budgets.rs"]
mod budgets;
#[path = "across/cluster.rs"]
mod cluster;
#[path = "across/cutoff.rs"]
mod cutoff;
#[path = "across/lists.rs"]
mod lists;
#[path = "across/pages.rs"]
mod pages;
#[path = "across/reader.rs"]
mod reader;
#[path = "across/watches.rs"]
mod watches;
