//! Finds cycles between the modules of the engine.
//!
//! # What counts as a use
//! The modules of a folder, files and folders alike, must have an order in which each module uses
//! only modules before it. So the folder can be drawn in layers. A module uses another module if
//! its code names the other one: in an import, or in a path that begins with `super`, `self`,
//! `crate::engine` or the name of a child. Comments, strings and unit tests do not count.
//!
//! - A use between files of two sibling folders counts as a use between the folders: if
//!   `claim/poller.rs` names `settle::buffer`, then `claim` uses `settle`.
//! - A name that a parent re-exports counts as a use of the child that declares it.
//! - A parent that only declares and re-exports its children does not count. A parent with its own
//!   code counts as one more module beside its children: it may use them, or they may use it, but
//!   not both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::source::{CodePath, PathKind, code_of, paths_in, tokens_of};

/// A module, given by the names that lead to it from the root.
type Module = Vec<String>;

/// A file of a module.
struct File {
    /// Its path below the root, as shown to people.
    shown: String,
    paths: Vec<CodePath>,
    /// Whether the file only declares and re-exports other modules.
    only_declares: bool,
}

/// The modules below one source folder, and what they use.
pub(super) struct Modules {
    /// The path by which other modules of the crate name the root.
    root: Vec<String>,
    files: BTreeMap<Module, File>,
}

/// Sibling modules that use each other, directly or indirectly.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cycle {
    /// All files that take part in the cycle.
    pub(super) files: BTreeSet<String>,
    /// A shortest cycle: a file, the file that it uses, and so on. If a cycle enters a folder by
    /// one file and leaves it by another, both are listed.
    pub(super) chain: Vec<String>,
}

impl Modules {
    /// Reads the modules in this folder. Other modules of the crate refer to the root of the folder
    /// as `crate::<name>`.
    pub(super) fn read(folder: &Path, name: &str) -> Result<Self> {
        let mut sources = Vec::new();
        for file in super::rust_files(folder)? {
            let shown = file.strip_prefix(folder)?.display().to_string();
            sources.push((shown, fs::read_to_string(&file)?));
        }
        Ok(Self::of(name, sources))
    }

    fn of(name: &str, sources: impl IntoIterator<Item = (String, String)>) -> Self {
        let files = sources.into_iter().map(|(shown, source)| {
            let stem = shown.trim_end_matches(".rs").trim_end_matches("mod");
            let module = stem.split('/').filter(|part| !part.is_empty());
            let code = code_of(&source);
            let file = File {
                paths: paths_in(&code),
                only_declares: only_declares(&code),
                shown: shown.clone(),
            };
            (module.map(str::to_owned).collect(), file)
        });
        Self {
            root: vec!["crate".to_owned(), name.to_owned()],
            files: files.collect(),
        }
    }

    /// Returns the number of files that have their own code.
    pub(super) fn count(&self) -> usize {
        let files = self.files.values();
        files.filter(|file| !file.only_declares).count()
    }

    /// Returns the cycles, those between folders first.
    pub(super) fn cycles(&self) -> Vec<Cycle> {
        let mut cycles = Vec::new();
        for (parent, uses) in self.levels() {
            for component in components(&uses) {
                let chain = shortest_cycle(&uses, &component);
                cycles.push(self.cycle(&parent, &uses, &component, &chain));
            }
        }
        cycles
    }

    /// Returns, for each parent module, the uses between its child modules. Each use has one pair
    /// of modules as an example. The empty name stands for the parent's own code.
    fn levels(&self) -> BTreeMap<Module, Uses> {
        let mut levels: BTreeMap<Module, Uses> = BTreeMap::new();
        for (user, used) in self.uses() {
            let same = user.iter().zip(&used).take_while(|(a, b)| a == b).count();
            let below = |module: &Module| module.get(same).cloned().unwrap_or_default();
            let edge = (below(&user), below(&used));
            let level = levels.entry(user[..same].to_vec()).or_default();
            level.entry(edge).or_insert((user, used));
        }
        levels
    }

    /// Returns the pairs of a module and a module that it uses.
    fn uses(&self) -> BTreeSet<(Module, Module)> {
        let mut uses = BTreeSet::new();
        for (module, file) in &self.files {
            for path in &file.paths {
                let Some(used) = self.used(module, path) else {
                    continue;
                };
                let of_a_child = path.kind == PathKind::ReExport && used.starts_with(module);
                if used != *module && !of_a_child {
                    uses.insert((module.clone(), used));
                }
            }
        }
        uses
    }

    /// Returns the module in which a path ends, as seen from `from`, or `None` if the path leaves
    /// the root.
    fn used(&self, from: &Module, path: &CodePath) -> Option<Module> {
        let (begin, rest) = self.begin(from, &path.segments)?;
        Some(self.walk(begin, rest, 0))
    }

    /// Returns the module where a path begins, and the rest of the path.
    fn begin<'a>(&self, from: &Module, path: &'a [String]) -> Option<(Module, &'a [String])> {
        if path.starts_with(&self.root) {
            return Some((Vec::new(), &path[self.root.len()..]));
        }
        match path.first()?.as_str() {
            "self" => Some((from.clone(), &path[1..])),
            "super" => {
                let ups = path.iter().take_while(|one| *one == "super").count();
                let at = from.len().checked_sub(ups)?;
                Some((from[..at].to_vec(), &path[ups..]))
            }
            name => {
                let is_child = self.has(&[from.as_slice(), &[name.to_owned()]].concat());
                is_child.then(|| (from.clone(), path))
            }
        }
    }

    fn has(&self, module: &[String]) -> bool {
        self.files.keys().any(|one| one.starts_with(module))
    }

    /// Follows names down to a module, including through re-exports.
    fn walk(&self, mut module: Module, mut rest: &[String], depth: usize) -> Module {
        while let Some((name, after)) = rest.split_first() {
            let child = [module.as_slice(), std::slice::from_ref(name)].concat();
            if !self.has(&child) {
                return self.declaring(module, name, depth);
            }
            (module, rest) = (child, after);
        }
        module
    }

    /// Returns the module that declares a name, which `module` either declares itself or
    /// re-exports.
    fn declaring(&self, module: Module, name: &str, depth: usize) -> Module {
        let Some(file) = self.files.get(&module).filter(|_| depth < 8) else {
            return module;
        };
        let mut exports = file
            .paths
            .iter()
            .filter(|path| path.kind == PathKind::ReExport);
        let export = exports.find(|path| path.segments.last().is_some_and(|last| last == name));
        match export.and_then(|path| self.begin(&module, &path.segments)) {
            Some((begin, rest)) => self.walk(begin, rest, depth + 1),
            None => module,
        }
    }

    fn cycle(
        &self,
        parent: &Module,
        uses: &Uses,
        component: &BTreeSet<String>,
        chain: &[String],
    ) -> Cycle {
        let shown = |module: &Module| match self.files.get(module) {
            Some(file) => file.shown.clone(),
            None => module.join("/"),
        };
        let mut names: Vec<String> = Vec::new();
        for pair in chain.windows(2) {
            let (user, used) = &uses[&(pair[0].clone(), pair[1].clone())];
            for name in [shown(user), shown(used)] {
                if names.last() != Some(&name) {
                    names.push(name);
                }
            }
        }
        if let Some(first) = names.first().filter(|first| names.last() != Some(first)) {
            names.push(first.clone());
        }
        let inside = |module: &&Module| {
            let below = module.get(parent.len()).cloned().unwrap_or_default();
            module.starts_with(parent) && component.contains(&below)
        };
        let files = self.files.keys().filter(inside).map(shown);
        Cycle {
            files: files.collect(),
            chain: names,
        }
    }
}

type Uses = BTreeMap<(String, String), (Module, Module)>;

/// Returns whether the code contains only declarations of modules and imports.
fn only_declares(code: &str) -> bool {
    let tokens = tokens_of(code);
    let mut items = tokens.split(|token| *token == ";");
    items.all(|item| {
        let mut item = item;
        while item.first() == Some(&"#") {
            let end = item.iter().position(|token| *token == "]");
            item = end.map_or(&[], |end| &item[end + 1..]);
        }
        let visibility = item.iter().take_while(|token| {
            matches!(**token, "pub" | "(" | ")" | "crate" | "super" | "in" | "::")
        });
        let item = &item[visibility.count()..];
        item.is_empty() || matches!(item[0], "mod" | "use")
    })
}

/// Returns the groups of at least two modules that all use each other, directly or indirectly.
fn components(uses: &Uses) -> Vec<BTreeSet<String>> {
    let names: BTreeSet<&String> = uses.keys().flat_map(|(user, used)| [user, used]).collect();
    let reached = |from: &String| -> BTreeSet<String> {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(name) = next.pop() {
            for (_, used) in uses.keys().filter(|(user, _)| user == name) {
                if seen.insert(used.clone()) {
                    next.push(used);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        names.iter().map(|name| (*name, reached(name))).collect();
    let mut components = BTreeSet::new();
    for (name, from_it) in &reached {
        let back = |other: &&String| reached[*other].contains(*name);
        let component: BTreeSet<String> = from_it.iter().filter(back).cloned().collect();
        if component.len() > 1 {
            components.insert(component);
        }
    }
    components.into_iter().collect()
}

/// Returns a shortest path from a module of this group back to itself.
fn shortest_cycle(uses: &Uses, component: &BTreeSet<String>) -> Vec<String> {
    let ways = component.iter().filter_map(|begin| {
        let mut ways = VecDeque::from([vec![begin.clone()]]);
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            let at = &way[way.len() - 1];
            for (_, used) in uses.keys().filter(|(user, _)| user == at) {
                let longer = [way.as_slice(), std::slice::from_ref(used)].concat();
                if used == begin {
                    return Some(longer);
                }
                if component.contains(used) && seen.insert(used.clone()) {
                    ways.push_back(longer);
                }
            }
        }
        None
    });
    ways.min_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(sources: &[(&str, &str)]) -> Modules {
        let owned = |text: &str| text.to_owned();
        let sources = sources
            .iter()
            .map(|(name, source)| (owned(name), owned(source)));
        Modules::of("engine", sources)
    }

    fn chains(sources: &[(&str, &str)]) -> Vec<String> {
        let cycles = modules(sources).cycles();
        cycles
            .iter()
            .map(|cycle| cycle.chain.join(" -> "))
            .collect()
    }

    #[test]
    fn a_cycle_of_files_is_a_chain_of_their_names() {
        let found = chains(&[
            ("mod.rs", "mod a;\nmod b;\nmod c;\nmod d;\npub use a::A;"),
            ("a.rs", "use super::{b::B, d};\npub struct A;"),
            ("b.rs", "fn f() { crate::engine::c::f(); }"),
            ("c.rs", "use super::A;"),
            ("d.rs", "// use super::a::A;\nuse crate::model::a;"),
        ]);
        assert_eq!(found, ["a.rs -> b.rs -> c.rs -> a.rs"]);
    }

    #[test]
    fn folders_that_use_each_other_form_a_cycle_without_one_of_files() {
        let found = chains(&[
            ("mod.rs", "mod claim;\nmod settle;"),
            (
                "claim/mod.rs",
                "pub(crate) mod poller;\npub(crate) mod ready;",
            ),
            (
                "claim/poller.rs",
                "use crate::engine::settle::buffer::Buffer;",
            ),
            ("claim/ready.rs", "pub(crate) struct Ready;"),
            (
                "settle/mod.rs",
                "pub(crate) mod buffer;\npub(crate) mod settler;",
            ),
            ("settle/buffer.rs", "pub(crate) struct Buffer;"),
            ("settle/settler.rs", "use super::super::claim::ready;"),
        ]);
        let chain = "claim/poller.rs -> settle/buffer.rs -> settle/settler.rs -> claim/ready.rs \
                     -> claim/poller.rs";
        assert_eq!(found, [chain]);
    }

    #[test]
    fn layers_have_no_cycle() {
        let found = chains(&[
            ("mod.rs", "mod a;\nmod b;\n#[cfg(x)]\npub(crate) use b::B;"),
            (
                "a.rs",
                "use super::B;\n#[cfg(test)]\nmod tests { use super::*; }",
            ),
            ("b/mod.rs", "mod c;\nmod d;\npub(crate) use c::B;"),
            ("b/c.rs", "use super::d::D;"),
            ("b/d.rs", "/// Of `super::c`.\npub(crate) struct D;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_parent_with_code_of_its_own_counts() {
        let parent = "mod child;\npub(crate) fn f() { child::f(); }";
        let child = ("a/child.rs", "use super::f as g;\npub(crate) fn f() {}");
        let found = chains(&[("mod.rs", "mod a;"), ("a/mod.rs", parent), child]);
        assert_eq!(found, ["a/mod.rs -> a/child.rs -> a/mod.rs"]);
        let declares = "mod child;\npub(crate) use child::f;";
        let found = chains(&[("mod.rs", "mod a;"), ("a/mod.rs", declares), child]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn modules_that_only_declare_are_not_counted() {
        let modules = modules(&[
            ("mod.rs", "mod a;\npub(crate) mod b;\npub use a::A;"),
            ("a.rs", "pub struct A;"),
            ("b.rs", "fn f() {}"),
        ]);
        assert_eq!(modules.count(), 2);
    }
}
