//! The examples of the README and the guide, compiled and run as documentation tests.

macro_rules! pages {
    ($($name:ident $file:literal)*) => {$(
        #[doc = include_str!(concat!("../docs/guide/", $file))]
        mod $name {}
    )*};
}

pages! {
    getting_started "getting-started.md"
    jobs "jobs.md"
    retries "retries.md"
    priorities "priorities.md"
    tenants "tenants.md"
    scheduling "scheduling.md"
    unique "unique.md"
    transactions "transactions.md"
    workflows "workflows.md"
    limits "limits.md"
    long_jobs "long-jobs.md"
    cluster "cluster.md"
    deploys "deploys.md"
    testing "testing.md"
    operating "operating.md"
    backends "backends.md"
    backup "backup.md"
    extending "extending.md"
    writing_a_store "writing-a-store.md"
    writing_a_coordinator "writing-a-coordinator.md"
    migrating "migrating.md"
}

#[doc = include_str!("../README.md")]
mod readme {}
