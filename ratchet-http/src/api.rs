use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
#[cfg(feature = "prometheus")]
use std::sync::Once;
#[cfg(feature = "prometheus")]
use std::time::Duration;

use axum::Router;
use http::request::Parts;
use ratchet_core::{Client, Name, Node};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::auth::{Access, Authorizer};
use crate::guard::{Hosts, Writes};
use crate::limits::Limits;
use crate::problem::{Code, Problem};
#[cfg(feature = "prometheus")]
use crate::prometheus::PrometheusHandle;
use crate::reads::Reads;
use crate::routes;
use crate::sampler::Sampler;
use crate::token::Token;

/// How often the recorder of metrics tidies up.
#[cfg(feature = "prometheus")]
const UPKEEP: Duration = Duration::from_secs(5);

/// The API, ready to be nested or served. Clones are the same.
///
/// What it shows of the whole cluster it reads in the background, at an interval of its own, for as
/// long as a clone of it or of its router exists: page loads and clients of `/api/events` read that
/// and not the database.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use ratchet_core::{MemoryStore, Ratchet};
/// use ratchet_http::Api;
///
/// let client = Ratchet::client(Arc::new(MemoryStore::new()));
/// let api = Api::builder(client).build()?;
/// let app = axum::Router::new().nest("/ratchet", api.router());
/// # drop::<axum::Router>(app);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Api(Arc<Inner>);

struct Inner {
    client: Client,
    node: Option<Node>,
    authorizer: Option<Arc<dyn Authorizer>>,
    takes_token: bool,
    payloads: Payloads,
    limits: Limits,
    hosts: Hosts,
    proxies: Vec<IpAddr>,
    read_only: bool,
    allow_remote: bool,
    ready_while_stranded: bool,
    namespaces: Vec<Name>,
    reads: Reads,
    writes: Writes,
    sampler: Sampler,
    #[cfg(feature = "prometheus")]
    prometheus: Option<PrometheusHandle>,
    #[cfg(feature = "prometheus")]
    kept_up: Once,
    /// Ends the event streams, and the reading in the background.
    closing: CancellationToken,
    _close: DropGuard,
}

impl Api {
    /// Begins an API over this client's store.
    pub fn builder(client: Client) -> ApiBuilder {
        ApiBuilder {
            client,
            node: None,
            authorizer: None,
            takes_token: false,
            payloads: Payloads::default(),
            limits: Limits::default(),
            hosts: Vec::new(),
            proxies: Vec::new(),
            read_only: false,
            namespaces: Vec::new(),
            allow_remote: false,
            ready_while_stranded: false,
            #[cfg(feature = "prometheus")]
            prometheus: None,
        }
    }

    /// The router, to be nested at any path, also below others.
    pub fn router(&self) -> Router {
        routes::router(self, self.hosts().clone())
    }

    /// Ends the event streams that are open, and the reading in the background, for good. Servers
    /// that wait for their connections to end before they stop would otherwise wait for clients of
    /// `/api/events`.
    pub fn close(&self) {
        self.0.closing.cancel();
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// The node of this process, if the API speaks of one.
    pub(crate) fn node(&self) -> Option<&Node> {
        self.0.node.as_ref()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(crate) fn sampler(&self) -> &Sampler {
        #[cfg(feature = "prometheus")]
        self.0.kept_up.call_once(|| self.keep_up());
        self.0.sampler.started(&self.0.closing)
    }

    pub(crate) fn hosts(&self) -> &Hosts {
        &self.0.hosts
    }

    /// The proxies whose `X-Forwarded-For` is believed.
    pub(crate) fn proxies(&self) -> &[IpAddr] {
        &self.0.proxies
    }

    pub(crate) fn is_proxy(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        let mut proxies = self.0.proxies.iter();
        proxies.any(|one| one.to_canonical() == peer)
    }

    /// Reports whether it writes for the clients that the authorizer admits.
    pub(crate) fn writes(&self) -> bool {
        self.has_authorizer() && !self.0.read_only
    }

    /// Whether jobs that no live node can run count against readiness.
    pub(crate) fn minds_stranded(&self) -> bool {
        !self.0.ready_while_stranded
    }

    /// The versions to show.
    pub(crate) fn namespaces(&self) -> &[Name] {
        &self.0.namespaces
    }

    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    pub(crate) fn has_authorizer(&self) -> bool {
        self.0.authorizer.is_some()
    }

    /// Whether the authorizer is a [`Token`].
    pub(crate) fn takes_token(&self) -> bool {
        self.0.takes_token
    }

    pub(crate) fn allows_remote(&self) -> bool {
        self.0.allow_remote
    }

    /// The recorder of metrics, if there is one.
    #[cfg(feature = "prometheus")]
    pub(crate) fn metrics(&self) -> Option<String> {
        let recorder = self.0.prometheus.as_ref();
        recorder.map(PrometheusHandle::render)
    }

    /// Lets the recorder put what was measured into its buckets now and then, even if no program
    /// reads it: it would keep every single measurement otherwise.
    #[cfg(feature = "prometheus")]
    fn keep_up(&self) {
        let Some(recorder) = self.0.prometheus.clone() else {
            return;
        };
        let closed = self.0.closing.clone().cancelled_owned();
        tokio::spawn(async move {
            let upkeep = async {
                loop {
                    tokio::time::sleep(UPKEEP).await;
                    recorder.run_upkeep();
                }
            };
            tokio::select! {
                () = closed => {}
                () = upkeep => {}
            }
        });
    }

    /// There is none.
    #[cfg(not(feature = "prometheus"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn metrics(&self) -> Option<String> {
        None
    }

    /// Lets the request pass, or says why not. The table of routes sees to this for the access that
    /// a route has as a whole; handlers ask for what depends on more than the path.
    pub(crate) async fn authorize(&self, request: &Parts, access: Access) -> Result<(), Problem> {
        if matches!(access, Access::Write(_)) && !self.writes() {
            let detail = match self.has_authorizer() {
                true => "this API only reads: it was built as read-only",
                false => "this API only reads: the program installed no authorizer",
            };
            return Err(Problem::new(Code::ReadOnly, detail));
        }
        match &self.0.authorizer {
            Some(authorizer) => Ok(authorizer.authorize(request, access).await?),
            None if access == Access::Payload => Err(Problem::new(
                Code::Denied,
                "only an authorizer lets a client see payloads",
            )),
            None => Ok(()),
        }
    }

    /// Whether payloads are shown at all.
    pub(crate) fn payloads(&self) -> Payloads {
        self.0.payloads
    }

    /// Whether this request may see payloads.
    pub(crate) async fn shows_payloads(&self, request: &Parts) -> bool {
        self.payloads() == Payloads::Shown && self.authorize(request, Access::Payload).await.is_ok()
    }

    /// How many read from the store at present.
    pub(crate) fn reads(&self) -> &Reads {
        &self.0.reads
    }

    /// Begins a write, unless too many were begun.
    pub(crate) fn admit_write(&self) -> Result<(), Problem> {
        self.0.writes.begin()
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("node", &self.0.node.as_ref().map(Node::id))
            .field("reads_only", &!self.writes())
            .field("payloads", &self.0.payloads)
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}

/// Whether the payloads and results of jobs are shown.
///
/// ```
/// use std::sync::Arc;
/// use ratchet_core::{MemoryStore, Ratchet};
/// use ratchet_http::{Api, Payloads};
///
/// let client = Ratchet::client(Arc::new(MemoryStore::new()));
/// let builder = Api::builder(client).payloads(Payloads::Shown);
/// # drop(builder);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payloads {
    /// Never: they may hold what operators are not meant to see.
    #[default]
    Hidden,
    /// To callers that the [`Authorizer`] lets see them; without one, to none.
    Shown,
}

/// Settings of an [`Api`].
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use ratchet_core::{MemoryStore, Ratchet};
/// use ratchet_http::Api;
///
/// let client = Ratchet::client(Arc::new(MemoryStore::new()));
/// let api = Api::builder(client).read_only().build()?;
/// # drop(api);
/// # Ok(()) }
/// ```
#[must_use = "nothing is built yet"]
pub struct ApiBuilder {
    client: Client,
    node: Option<Node>,
    authorizer: Option<Arc<dyn Authorizer>>,
    takes_token: bool,
    payloads: Payloads,
    limits: Limits,
    hosts: Vec<String>,
    proxies: Vec<IpAddr>,
    read_only: bool,
    namespaces: Vec<String>,
    allow_remote: bool,
    ready_while_stranded: bool,
    #[cfg(feature = "prometheus")]
    prometheus: Option<PrometheusHandle>,
}

impl ApiBuilder {
    /// Speaks of this node in the probes and in `/cluster/status`. Without one there is no node of
    /// its own: it is ready while the database answers and a live node can run the jobs that are
    /// due, and leads in nothing.
    pub fn node(mut self, node: &Node) -> Self {
        self.node = Some(node.clone());
        self
    }

    /// Asks this before every request but the probes and the files of the dashboard. Without one
    /// the API only reads.
    pub fn authorize(mut self, authorizer: impl Authorizer) -> Self {
        self.takes_token = (&authorizer as &dyn Any).is::<Token>();
        self.authorizer = Some(Arc::new(authorizer));
        self
    }

    /// Sets whether payloads and results are shown; by default they are hidden.
    pub fn payloads(mut self, payloads: Payloads) -> Self {
        self.payloads = payloads;
        self
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Answers only requests for one of these hosts, names or addresses without a port, and those
    /// on loopback; the probes are answered for any. Without any, [`serve`](crate::serve) on
    /// loopback answers only for loopback: a page of another site that has the name of that site
    /// point to this machine must not read the jobs. Elsewhere hosts are then not looked at.
    pub fn hosts<I: IntoIterator<Item: Into<String>>>(mut self, hosts: I) -> Self {
        self.hosts = hosts.into_iter().map(Into::into).collect();
        self
    }

    /// Refuses every write, whatever the authorizer would allow.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Believes these proxies when they name the client of a request in `X-Forwarded-For`, in
    /// [`serve`](crate::serve). Without them all clients of a proxy count as one, which then share
    /// the reads of the store and the allowance of wrong tokens. The bound of connections per peer
    /// does not apply to a proxy.
    pub fn proxies<I: IntoIterator<Item = IpAddr>>(mut self, proxies: I) -> Self {
        self.proxies = proxies.into_iter().collect();
        self
    }

    /// Shows these [versions](ratchet_core::VersionWatch) in `/cluster/status`.
    pub fn versions<I: IntoIterator<Item: Into<String>>>(mut self, namespaces: I) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Keeps `/ready` at 200 while jobs are due that no node in the cluster can run, or no node is
    /// live: for programs that serve something else as well, which must go on whatever becomes of
    /// those jobs.
    pub fn ready_while_stranded(mut self) -> Self {
        self.ready_while_stranded = true;
        self
    }

    /// Lets [`serve`](crate::serve) listen elsewhere than on loopback although there is no
    /// authorizer: everybody who reaches the port may then read everything but payloads. On
    /// loopback without [`hosts`](Self::hosts) it answers for any host.
    pub fn allow_remote(mut self) -> Self {
        self.allow_remote = true;
        self
    }

    /// Answers `/metrics` with what this recorder holds.
    #[cfg(feature = "prometheus")]
    pub fn prometheus(mut self, handle: PrometheusHandle) -> Self {
        self.prometheus = Some(handle);
        self
    }

    /// Builds the API. Inside a runtime it begins to read in the background; otherwise with the
    /// first request.
    ///
    /// # Errors
    /// [`BuildError`], with everything that cannot work.
    pub fn build(self) -> Result<Api, BuildError> {
        let mut problems = self.limits.problems();
        let hosts = Hosts::new(&self.hosts, &mut problems);
        let namespaces = self.namespaces.iter().filter_map(|namespace| {
            let name = Name::new("namespace", namespace.as_str());
            name.map_err(|invalid| problems.push(invalid.to_string()))
                .ok()
        });
        let namespaces: Vec<Name> = namespaces.collect();
        if !problems.is_empty() {
            return Err(BuildError { problems });
        }
        let closing = CancellationToken::new();
        let api = Api(Arc::new(Inner {
            sampler: Sampler::new(self.client.clone(), namespaces.clone()),
            reads: Reads::new(self.limits.reads),
            writes: Writes::new(self.limits.writes_per_second),
            client: self.client,
            node: self.node,
            authorizer: self.authorizer,
            takes_token: self.takes_token,
            payloads: self.payloads,
            limits: self.limits,
            hosts,
            proxies: self.proxies,
            read_only: self.read_only,
            allow_remote: self.allow_remote,
            ready_while_stranded: self.ready_while_stranded,
            namespaces,
            #[cfg(feature = "prometheus")]
            prometheus: self.prometheus,
            #[cfg(feature = "prometheus")]
            kept_up: Once::new(),
            _close: closing.clone().drop_guard(),
            closing,
        }));
        if tokio::runtime::Handle::try_current().is_ok() {
            api.sampler();
        }
        Ok(api)
    }
}

impl fmt::Debug for ApiBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiBuilder")
            .field("payloads", &self.payloads)
            .field("limits", &self.limits)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// Settings that cannot work.
///
/// ```
/// # use std::sync::Arc;
/// use ratchet_core::{MemoryStore, Ratchet};
/// use ratchet_http::{Api, Limits};
///
/// let client = Ratchet::client(Arc::new(MemoryStore::new()));
/// if let Err(error) = Api::builder(client).limits(Limits::default().page(0)).build() {
///     assert!(error.problems()[0].contains("page"));
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API cannot be built: {}", problems.join("; "))]
pub struct BuildError {
    problems: Vec<String>,
}

impl BuildError {
    /// The problems, each with the setting and its value.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}
