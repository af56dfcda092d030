//! Ratchet's configuration: the file `ratchet.toml`, environment variables, and the program's
//! arguments.
//!
//! The file takes precedence over defaults, variables over the file, and arguments over variables.
//! Keys that do not exist are refused. All problems are reported together, each with the key, its
//! value unless that is secret, and the value's origin. The rules and the defaults are those of the
//! engine. A key that is not set does not change what the program has set on its builder.
//!
//! ```
//! use ratchet_config::Config;
//!
//! let config = Config::loader()
//!     .text("ratchet.toml", "[store]\nurl = 'memory:'\n[cluster]\nttl = '20s'\n")
//!     .variables([("RATCHET_WORKER__CONCURRENCY", "8")])
//!     .load()?;
//! assert_eq!(config.worker.concurrency, Some(8));
//! assert_eq!(config.origin("cluster.ttl").to_string(), "ratchet.toml:4");
//! # Ok::<(), ratchet_config::ConfigError>(())
//! ```

mod apply;
mod backend;
mod config;
mod file;
mod load;
mod origin;
mod problem;
mod redact;
mod rules;
mod sample;
mod secret;
mod section;
mod sections;
mod show;
mod value;
mod variables;

pub use backend::{BACKENDS, Backend, register_scheme};
pub use config::Config;
pub use load::{FILE, Loader};
pub use origin::Origin;
pub use problem::{ConfigError, Place, Problem};
pub use redact::redact_url;
pub use sample::{keys, reference, sample};
pub use secret::{HIDDEN, Secret};
pub use section::Key;
pub use sections::*;
pub use show::Setting;
pub use value::DatabaseUrl;
pub use variables::FILE_VARIABLE;

/// Names of the top-level sections of the configuration file, in the order of the sample file.
pub const SECTIONS: [&str; 7] = [
    "store", "node", "cluster", "worker", "permits", "poll", "http",
];
