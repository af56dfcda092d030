//! The servers that the tests of the stores use.

use std::thread;

use anyhow::{Result, anyhow};

use crate::backends::{BACKENDS, Needs};
use crate::db::{self, InMemory, Server};

/// The servers of the tests, or the reasons why they are missing. Dropping this value stops the
/// servers.
pub(super) struct Servers {
    /// Each server by the name of its backend, with the variable that passes its URL to the tests.
    backends: Vec<(&'static str, &'static str, Result<Server>)>,
    /// The server for the example of a custom coordinator.
    pub(super) redis: Result<Server>,
    /// The directory in memory in which servers and tests keep their files, if one is used. Dropped
    /// last.
    memory: Option<InMemory>,
}

impl Servers {
    /// Starts the servers, all at once.
    pub(super) fn start() -> Result<Self> {
        let memory = db::use_memory()?;
        let needed = BACKENDS
            .iter()
            .filter_map(|backend| Some((backend.name, backend.server.as_ref()?)));
        let starting: Vec<_> = needed
            .map(|(name, Needs { url, provide, .. })| (name, *url, thread::spawn(*provide)))
            .collect();
        let backends = starting.into_iter().map(|(name, url, server)| {
            let server = server.join();
            let server = server
                .unwrap_or_else(|_| Err(anyhow!("the thread that starts the server panicked")));
            (name, url, server)
        });
        Ok(Self {
            backends: backends.collect(),
            redis: db::redis::provide(),
            memory,
        })
    }

    /// Returns a value in which every server is unavailable for the same reason.
    #[cfg(test)]
    pub(super) fn absent(reason: &'static str) -> Self {
        let needed = BACKENDS.iter();
        let backends = needed
            .filter_map(|backend| Some((backend.name, backend.server.as_ref()?.url)))
            .map(|(name, url)| (name, url, Err(anyhow!(reason))));
        Self {
            memory: None,
            backends: backends.collect(),
            redis: Err(anyhow!(reason)),
        }
    }

    /// Starts no servers, for a run whose tests need none.
    pub(super) fn none() -> Result<Self> {
        Ok(Self {
            memory: db::use_memory()?,
            backends: Vec::new(),
            redis: Err(anyhow!("not needed")),
        })
    }

    /// Prints which servers are available.
    pub(super) fn announce(&self) {
        match &self.memory {
            Some(memory) => println!("files of the tests: in memory, {}", memory.path.display()),
            None => println!("files of the tests: on disk"),
        }
        for (name, _, server) in &self.backends {
            match server {
                Ok(server) => println!("server for {name}: {}", server.origin),
                Err(reason) => println!("server for {name}: not available, {reason:#}"),
            }
        }
    }

    /// Returns the variables that pass the servers to the tests, with their values.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let backends = self.backends.iter();
        let backends = backends.map(|(_, variable, server)| (*variable, server));
        let all = backends.chain([(db::redis::URL, &self.redis)]);
        let urls = all
            .filter_map(|(variable, server)| Some((variable, server.as_ref().ok()?.url.as_str())));
        let memory = self.memory.as_ref().and_then(|memory| memory.path.to_str());
        let mongod = self.of("mongodb").and_then(|server| server.as_ref().ok());
        let mongod = mongod.and_then(|server| server.program.as_ref()?.to_str());
        urls.chain(memory.map(|path| ("TMPDIR", path)))
            .chain(mongod.map(|path| (db::mongodb::PROGRAM, path)))
    }

    /// Returns the server of a backend, or `None` if its tests need none.
    pub(super) fn of(&self, backend: &str) -> Option<&Result<Server>> {
        let mut servers = self.backends.iter();
        servers.find_map(|(name, _, server)| (*name == backend).then_some(server))
    }
}
