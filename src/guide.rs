//! The examples of the guide, compiled and run as documentation tests.

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
    transactions "transactions.md"
    workflows "workflows.md"
    limits "limits.md"
    scheduling "scheduling.md"
    deploys "deploys.md"
    testing "testing.md"
    operating "operating.md"
}
