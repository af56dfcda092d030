//! Divides the jobs of a node among its pools.
//!
//! A job's route has a queue, a kind and perhaps a capability, and each pool selects by one of the
//! three. However many pools have selected, the remaining jobs therefore still have the form "these
//! queues, these kinds, these capabilities". Every share has this form, so a single claim request
//! can express it. No two shares overlap, and together the shares cover all jobs that the node may
//! run.

use crate::engine::settings::config::Config;
use crate::engine::settings::pool::{Pool, SYSTEM_QUEUE};
use crate::error::SettingProblem;
use crate::id::NodeId;
use crate::limits::MAX_BATCH;
use crate::model::ClaimRequest;
use crate::name::Name;
use crate::route::Selection;

/// Jobs that one pool may run, and the size of the pool.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) name: Name,
    pub(crate) queues: Selection,
    pub(crate) kinds: Vec<Name>,
    pub(crate) capabilities: Vec<Name>,
    /// Whether jobs that require no capability belong to the share.
    pub(crate) untagged: bool,
    pub(crate) concurrency: usize,
    pub(crate) prefetch: usize,
}

impl Share {
    /// Returns a claim request for the jobs of this share. The caller must set the limit.
    pub(crate) fn request(&self, node: NodeId) -> ClaimRequest {
        ClaimRequest::new(node, 0)
            .queues(self.queues.clone())
            .kinds(Selection::Only(self.kinds.clone()))
            .capabilities(self.capabilities.iter().cloned())
            .untagged(self.untagged)
    }

    /// Returns the first criterion that admits no job: its list of queues, kinds or capabilities is
    /// empty. Returns `None` if every criterion admits jobs.
    fn lacks(&self) -> Option<Field> {
        if self.queues == Selection::Only(Vec::new()) {
            Some(Field::Queue)
        } else if self.kinds.is_empty() {
            Some(Field::Kind)
        } else {
            (self.capabilities.is_empty() && !self.untagged).then_some(Field::Capability)
        }
    }

    /// Returns a copy of the share that has only the jobs whose `field` is one of these names.
    fn only(&self, field: Field, names: &[Name]) -> Self {
        let mut part = self.clone();
        match field {
            Field::Queue => part.queues = Selection::Only(names.to_vec()),
            Field::Kind => part.kinds = names.to_vec(),
            Field::Capability => {
                part.capabilities = names.to_vec();
                part.untagged = false;
            }
        }
        part
    }

    /// Removes these names from the share's list of queues, kinds or capabilities. `field` selects
    /// the list.
    fn without(mut self, field: Field, names: &[Name]) -> Self {
        match field {
            Field::Queue => self.queues = self.queues.without(names),
            Field::Kind => self.kinds.retain(|kind| !names.contains(kind)),
            Field::Capability => self.capabilities.retain(|one| !names.contains(one)),
        }
        self
    }
}

/// Criterion by which a pool selects jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Queue,
    Kind,
    Capability,
}

impl Field {
    const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Kind => "kind",
            Self::Capability => "capability",
        }
    }

    /// Returns the name of the pool setting that contains the names for this criterion.
    const fn setting(self) -> &'static str {
        match self {
            Self::Queue => "queues",
            Self::Kind => "kinds",
            Self::Capability => "capabilities",
        }
    }
}

/// Divides the jobs that a node may run among its pools. Returns one share per pool, in the order
/// in which the pools select jobs.
///
/// # Errors
/// Returns all problems of the pool settings.
pub(crate) fn partition(
    queues: Selection,
    kinds: Vec<Name>,
    capabilities: Vec<Name>,
    config: &Config,
    pools: &[Pool],
) -> Result<Vec<Share>, Vec<SettingProblem>> {
    let node = Share {
        name: own_name("default"),
        queues,
        kinds,
        capabilities,
        untagged: config.untagged,
        concurrency: config.concurrency,
        prefetch: config.prefetch,
    };
    let mut partition = Partition {
        rest: node.clone(),
        node,
        taken: Vec::new(),
        shares: Vec::new(),
        problems: Vec::new(),
    };
    if !config.untagged && partition.node.capabilities.is_empty() {
        let text = "untagged is false and the node has no capability, so it can claim no job";
        let problem = SettingProblem::new(&["untagged", "capability"], text);
        partition.problems.push(problem);
    }
    if config.system_concurrency > 0 {
        partition.reserve(config.system_concurrency);
    }
    for pool in pools {
        partition.add(pool);
    }
    partition.finish()
}

struct Partition {
    /// All jobs that the node may run.
    node: Share,
    /// Jobs that no pool has selected yet.
    rest: Share,
    /// Names by which pools have selected jobs: the criterion, the name, and the pool that selected
    /// by this name.
    taken: Vec<(Field, Name, Name)>,
    shares: Vec<Share>,
    problems: Vec<SettingProblem>,
}

impl Partition {
    /// Reserves slots for the queue of the engine's own jobs, even if the node does not poll that
    /// queue otherwise.
    fn reserve(&mut self, concurrency: usize) {
        let (name, queues) = (own_name("system"), [own_name(SYSTEM_QUEUE)]);
        let mut share = self.rest.only(Field::Queue, &queues);
        share.name = name.clone();
        // The engine's own jobs require no capability.
        share.untagged = true;
        share.concurrency = concurrency;
        share.prefetch = Config::prefetch_for(concurrency);
        self.take(share, Field::Queue, &queues);
    }

    fn add(&mut self, pool: &Pool) {
        let Some(name) = self.name(("pool", &pool.name), (&pool.name, "")) else {
            return;
        };
        let mut names = self.shares.iter().map(|share| &share.name);
        if names.any(|other| *other == name) || name == self.node.name {
            let text = format!("two pools are named {name}");
            self.refuse(&name, "", text);
        }
        if pool.concurrency == 0 {
            let text = format!("concurrency of pool {name} is 0; the minimum is 1");
            self.refuse(&name, "concurrency", text);
        }
        let by = [
            (Field::Queue, &pool.queues),
            (Field::Kind, &pool.kinds),
            (Field::Capability, &pool.capabilities),
        ];
        let by: Vec<_> = by.iter().filter(|(_, texts)| !texts.is_empty()).collect();
        let [(field, texts)] = by[..] else {
            let fields: Vec<&str> = by.iter().map(|(field, _)| field.name()).collect();
            let text = match fields[..] {
                [] => format!("pool {name} selects no queue, kind or capability; choose one"),
                _ => format!(
                    "pool {name} selects by {}; choose one",
                    fields.join(" and by ")
                ),
            };
            self.refuse(&name, "", text);
            return;
        };
        let names: Vec<Name> = texts
            .iter()
            .filter_map(|text| self.free(*field, text, &name))
            .collect();
        let mut share = self.rest.only(*field, &names);
        share.name = name;
        share.untagged &= pool.untagged;
        share.concurrency = pool.concurrency;
        share.prefetch = pool
            .prefetch
            .unwrap_or_else(|| Config::prefetch_for(pool.concurrency));
        if !pool.untagged && self.node.capabilities.is_empty() {
            let text = format!(
                "untagged is false for pool {} and the node has no capability, so the pool can \
                 claim no job",
                share.name
            );
            self.refuse(&share.name, "untagged", text);
        } else if let Some(lacks) = share.lacks().filter(|lacks| lacks != field) {
            let text = format!(
                "pool {} can claim no job: the pools before it take every {}",
                share.name,
                lacks.name()
            );
            self.refuse(&share.name, "", text);
        }
        self.take(share, *field, &names);
    }

    /// Checks a name by which `pool` selects jobs. The node's own settings must contain this name,
    /// and no other pool may select by it. Returns the name, or records a problem and returns
    /// `None`.
    fn free(&mut self, field: Field, text: &str, pool: &Name) -> Option<Name> {
        let name = self.name((field.name(), text), (pool.as_str(), field.setting()))?;
        let taken = self
            .taken
            .iter()
            .find(|(by, other, _)| (*by, other) == (field, &name));
        let problem = if let Some((_, _, other)) = taken {
            format!(
                "{} {name} is in pool {other} and in pool {pool}; only one pool may have it",
                field.name()
            )
        } else {
            let (known, all) = match (field, &self.node.queues) {
                (Field::Queue, Selection::Only(all)) => (all.contains(&name), &all[..]),
                (Field::Queue, queues) => (queues.contains(&name), &[][..]),
                (Field::Kind, _) => (self.node.kinds.contains(&name), &self.node.kinds[..]),
                (Field::Capability, _) => {
                    let all = &self.node.capabilities;
                    (all.contains(&name), &all[..])
                }
            };
            if known {
                return Some(name);
            }
            format!(
                "{} {name} of pool {pool} is not among those of the node: {all:?}",
                field.name()
            )
        };
        self.refuse(pool, field.setting(), problem);
        None
    }

    fn refuse(&mut self, pool: &Name, setting: &str, text: String) {
        let problem = SettingProblem::of_pool(pool.as_str(), setting, text);
        self.problems.push(problem);
    }

    fn take(&mut self, share: Share, field: Field, names: &[Name]) {
        self.rest = self.rest.clone().without(field, names);
        let taken = names
            .iter()
            .map(|name| (field, name.clone(), share.name.clone()));
        self.taken.extend(taken);
        self.shares.push(share);
    }

    fn finish(mut self) -> Result<Vec<Share>, Vec<SettingProblem>> {
        if self.rest.lacks().is_none() {
            self.shares.push(self.rest);
        }
        let claims = |share: &Share| share.concurrency.saturating_add(share.prefetch);
        let total = self
            .shares
            .iter()
            .map(claims)
            .fold(0, usize::saturating_add);
        if total > MAX_BATCH {
            let each = |share: &Share| {
                let (name, concurrency) = (&share.name, share.concurrency);
                format!(
                    "{name}: concurrency {concurrency} + prefetch {}",
                    share.prefetch
                )
            };
            let each: Vec<String> = self.shares.iter().map(each).collect();
            let text = format!(
                "the pools hold up to {total} claims, which is more than {MAX_BATCH} ({})",
                each.join(", ")
            );
            let settings = ["concurrency", "system_concurrency", "prefetch"];
            self.problems.push(SettingProblem::new(&settings, text));
        }
        match self.problems.is_empty() {
            true => Ok(self.shares),
            false => Err(self.problems),
        }
    }

    /// Checks that `text`, from the setting of a pool, is a valid name. If it is not, records a
    /// problem and returns `None`.
    fn name(
        &mut self,
        (field, text): (&'static str, &str),
        (pool, setting): (&str, &str),
    ) -> Option<Name> {
        Name::new(field, text)
            .map_err(|error| {
                let problem = SettingProblem::of_pool(pool, setting, error.to_string());
                self.problems.push(problem);
            })
            .ok()
    }
}

/// Converts a text that the engine itself uses as a name, and that is always valid.
fn own_name(text: &'static str) -> Name {
    match Name::new("pool", text) {
        Ok(name) => name,
        Err(_) => unreachable!("{text} is a valid name"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::handler::{Job, JobContext, JobResult};
    use crate::route::Route;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Render;

    impl Job for Render {
        const KIND: &'static str = "render";
        type Output = ();

        async fn run(self, _ctx: JobContext) -> JobResult<()> {
            Ok(())
        }
    }

    fn names(texts: &[&str]) -> Vec<Name> {
        let name = |text: &&str| Name::new("test", text).unwrap();
        texts.iter().map(name).collect()
    }

    /// Partitions a node with the kinds `mail` and `render` and the capability `gpu`.
    fn of(queues: Selection, pools: &[Pool]) -> Result<Vec<Share>, Vec<String>> {
        let kinds = names(&["mail", "render"]);
        partition(queues, kinds, names(&["gpu"]), &Config::default(), pools)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn without_pools_there_are_the_default_and_the_system_pool() {
        for queues in [Selection::All, Selection::Only(names(&["a"]))] {
            let shares = of(queues, &[]).unwrap();
            let sizes = shares
                .iter()
                .map(|share| (share.name.as_str(), share.concurrency));
            assert_eq!(sizes.collect::<Vec<_>>(), [("system", 2), ("default", 32)]);
        }
        let config = Config {
            system_concurrency: 0,
            ..Config::default()
        };
        let shares = partition(Selection::All, names(&["mail"]), vec![], &config, &[]).unwrap();
        assert_eq!(shares.len(), 1);
        assert_eq!(shares[0].queues, Selection::All);
    }

    #[test]
    fn there_is_no_default_pool_if_nothing_is_left_for_it() {
        let pool = |queue: &str| Pool::new(queue).queues([queue]).concurrency(1);
        let queues = || Selection::Only(names(&["a", "b"]));
        assert_eq!(of(queues(), &[pool("a"), pool("b")]).unwrap().len(), 3);
        assert_eq!(of(queues(), &[pool("a")]).unwrap().len(), 3);
        assert_eq!(
            of(Selection::All, &[pool("a"), pool("b")]).unwrap().len(),
            4
        );
    }

    #[test]
    fn everything_that_cannot_work_is_named() {
        let a = || Pool::new("a").queues(["images"]).concurrency(1);
        for (pools, problem) in [
            (
                vec![Pool::new(" x")],
                "pool begins or ends with white space",
            ),
            (vec![a(), a().queues(["other"])], "two pools are named a"),
            (
                vec![Pool::new("default").queues(["mail"]).concurrency(1)],
                "two pools are named default",
            ),
            (
                vec![a().concurrency(0)],
                "concurrency of pool a is 0; the minimum is 1",
            ),
            (
                vec![a().queues([])],
                "pool a selects no queue, kind or capability; choose one",
            ),
            (
                vec![a().kind::<Render>()],
                "pool a selects by queue and by kind; choose one",
            ),
            (vec![a().queues(["\n"])], "queue has a control character"),
            (
                vec![a().queues(["cellar"])],
                r#"queue cellar of pool a is not among those of the node: ["images", "mail", "other"]"#,
            ),
            (
                vec![a().queues([]).capabilities(["arm"])],
                r#"capability arm of pool a is not among those of the node: ["gpu"]"#,
            ),
            (
                vec![a(), Pool::new("b").queues(["images"]).concurrency(1)],
                "queue images is in pool a and in pool b; only one pool may have it",
            ),
            (
                vec![a().queues([SYSTEM_QUEUE])],
                "queue system is in pool system and in pool a; only one pool may have it",
            ),
            (
                vec![
                    a().queues(["images", "mail", "other"]),
                    Pool::new("b").kind::<Render>().concurrency(1),
                ],
                "pool b can claim no job: the pools before it take every queue",
            ),
            (
                vec![a().concurrency(400).prefetch(9_000)],
                "the pools hold up to 10454 claims, which is more than 10000 (system: concurrency 2 + prefetch 60, a: concurrency 400 + prefetch 9000, default: concurrency 32 + prefetch 960)",
            ),
        ] {
            let queues = Selection::Only(names(&["images", "mail", "other"]));
            assert_eq!(of(queues, &pools).unwrap_err(), [problem]);
        }
        let pools = [Pool::new("a").kind::<Render>().concurrency(1)];
        let mail_only = partition(
            Selection::All,
            names(&["mail"]),
            vec![],
            &Config::default(),
            &pools,
        );
        let problem = r#"kind render of pool a is not among those of the node: ["mail"]"#;
        assert_eq!(
            mail_only.unwrap_err(),
            [SettingProblem::of_pool("a", "kinds", problem)]
        );
    }

    #[test]
    fn a_node_that_takes_no_untagged_jobs_needs_a_capability() {
        let config = Config {
            untagged: false,
            ..Config::default()
        };
        let with = |capabilities: &[&str], config: &Config, pools: &[Pool]| {
            let kinds = names(&["mail"]);
            partition(Selection::All, kinds, names(capabilities), config, pools)
        };
        let problem = "untagged is false and the node has no capability, so it can claim no job";
        let expected = SettingProblem::new(&["untagged", "capability"], problem);
        assert_eq!(with(&[], &config, &[]).unwrap_err(), [expected]);
        let untagged = |shares: Vec<Share>| -> Vec<(String, bool)> {
            let of = |share: &Share| (share.name.to_string(), share.untagged);
            shares.iter().map(of).collect()
        };
        let shares = untagged(with(&["gpu"], &config, &[]).unwrap());
        let (system, default) = ("system".to_owned(), "default".to_owned());
        assert_eq!(shares, [(system, true), (default, false)]);
        let pool = [Pool::new("a")
            .queues(["media"])
            .untagged(false)
            .concurrency(1)];
        let problem = "untagged is false for pool a and the node has no capability, so the pool can claim no \
            job";
        assert_eq!(
            with(&[], &Config::default(), &pool).unwrap_err(),
            [SettingProblem::of_pool("a", "untagged", problem)]
        );
    }

    proptest! {
        /// Checks that each route that the node may run is in exactly one pool, the first pool that
        /// selects it. If that pool excludes jobs without a capability, a route without a
        /// capability is in no pool. Routes that the node may not run are in no pool.
        #[test]
        fn every_route_belongs_to_the_first_pool_that_takes_it(
            polled in prop::option::of(prop::sample::subsequence(vec!["a", "b", "c"], 1..=3)),
            kinds in prop::sample::subsequence(vec!["k", "l", "m"], 1..=3),
            capabilities in prop::sample::subsequence(vec!["x", "y", "z"], 0..=3),
            system_concurrency in 0..2_usize,
            wanted in prop::collection::vec((0..3_usize, prop::collection::vec(0..3_usize, 1..3), any::<bool>()), 0..5),
            untagged in any::<bool>(),
        ) {
            let queues = polled.as_deref().map_or(Selection::All, |some| Selection::Only(names(some)));
            let pools: Vec<Pool> = wanted.iter().enumerate().map(|(number, (field, some, untagged))| {
                let mut pool = Pool::new(&format!("{number}")).concurrency(1).untagged(*untagged);
                let pick = |all: [&str; 3]| some.iter().map(|one| all[*one].to_owned()).collect();
                match field {
                    0 => pool.queues = pick(["a", "b", "c"]),
                    1 => pool.kinds = pick(["k", "l", "m"]),
                    _ => pool.capabilities = pick(["x", "y", "z"]),
                }
                pool
            }).collect();
            let config = Config { system_concurrency, untagged, ..Config::default() };
            let Ok(shares) = partition(queues.clone(), names(&kinds), names(&capabilities), &config, &pools) else {
                return Ok(());
            };
            let node = ClaimRequest::new(NodeId::new(), 1)
                .queues(queues)
                .kinds(Selection::Only(names(&kinds)))
                .capabilities(names(&capabilities))
                .untagged(untagged);
            for queue in ["a", "b", "c", "d", SYSTEM_QUEUE] {
                for kind in ["k", "l", "m"] {
                    for capability in ["", "x", "y", "z"] {
                        let route = Route::from_texts(queue, kind, capability, "").unwrap();
                        let in_shares: Vec<&str> = shares
                            .iter()
                            .filter(|share| route.matches(&share.request(NodeId::new())))
                            .map(|share| share.name.as_str())
                            .collect();
                        let reserved = system_concurrency > 0 && queue == SYSTEM_QUEUE;
                        let anywhere = node.clone().queues(Selection::All).untagged(true);
                        let runs = route.matches(if reserved { &anywhere } else { &node });
                        let takes = |pool: &&Pool| {
                            let among = |all: &[String], one: &str| all.iter().any(|other| other == one);
                            among(&pool.queues, queue) || among(&pool.kinds, kind) || among(&pool.capabilities, capability)
                        };
                        let first = pools.iter().find(takes);
                        let refused = capability.is_empty() && first.is_some_and(|pool| !pool.untagged);
                        let expected = match (runs, reserved) {
                            (false, _) => vec![],
                            (true, true) => vec!["system"],
                            (true, false) if refused => vec![],
                            (true, false) => vec![first.map_or("default", |pool| pool.name.as_str())],
                        };
                        prop_assert_eq!(&in_shares, &expected, "{:?} among {:?}", route, shares);
                    }
                }
            }
        }
    }
}
