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

/// The interval between two runs of the upkeep of the metrics recorder.
#[cfg(feature = "prometheus")]
const UPKEEP: Duration = Duration::from_secs(5);

/// The HTTP API. An application can [serve](crate::serve) it or nest its router. Clones share their
/// state.
///
/// The API reads the state of the whole cluster in the background, at its own interval. It does so
/// as long as the API, one of its clones, or one of its routers exists. The probes, the overview,
/// the nodes, the queues and `/api/events` use the results of the last reads, and do not query the
/// database themselves.
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
    /// A token whose cancellation ends the event streams and the background reads.
    closing: CancellationToken,
    _close: DropGuard,
}

impl Api {
    /// Returns a builder for an API over the store of `client`.
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

    /// Returns the router of the API. An application can nest the router at any path.
    pub fn router(&self) -> Router {
        routes::router(self, self.hosts().clone())
    }

    /// Ends the open event streams and the background reads, for good.
    ///
    /// Call this method before a graceful shutdown. Otherwise a server that waits for its
    /// connections also waits for the clients of `/api/events`.
    pub fn close(&self) {
        self.0.closing.cancel();
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// Returns the node that [`ApiBuilder::node`] set.
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

    /// Returns the proxies whose `X-Forwarded-For` header is trusted.
    pub(crate) fn proxies(&self) -> &[IpAddr] {
        &self.0.proxies
    }

    pub(crate) fn is_proxy(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        let mut proxies = self.0.proxies.iter();
        proxies.any(|one| one.to_canonical() == peer)
    }

    /// Returns whether the API accepts writes. The authorizer must still allow each write.
    pub(crate) fn writes(&self) -> bool {
        self.has_authorizer() && !self.0.read_only
    }

    /// Returns whether `/ready` fails if no live node can run some of the due jobs.
    pub(crate) fn minds_stranded(&self) -> bool {
        !self.0.ready_while_stranded
    }

    /// Returns the namespaces whose versions `/cluster/status` shows.
    pub(crate) fn namespaces(&self) -> &[Name] {
        &self.0.namespaces
    }

    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    pub(crate) fn has_authorizer(&self) -> bool {
        self.0.authorizer.is_some()
    }

    /// Returns whether the authorizer is a [`Token`].
    pub(crate) fn takes_token(&self) -> bool {
        self.0.takes_token
    }

    pub(crate) fn allows_remote(&self) -> bool {
        self.0.allow_remote
    }

    /// Returns the metrics in the text format of Prometheus. `None` if no recorder is set.
    #[cfg(feature = "prometheus")]
    pub(crate) fn metrics(&self) -> Option<String> {
        let recorder = self.0.prometheus.as_ref();
        recorder.map(PrometheusHandle::render)
    }

    /// Starts a task that runs the upkeep of the metrics recorder until the API closes.
    ///
    /// The upkeep sorts measurements into buckets. Without the upkeep, the recorder would keep
    /// every single measurement until a program reads the metrics.
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

    /// Returns `None`: without the feature `prometheus`, there is no metrics recorder.
    #[cfg(not(feature = "prometheus"))]
    #[expect(
        clippy::unused_self,
        reason = "the signature is the same as with the feature"
    )]
    pub(crate) fn metrics(&self) -> Option<String> {
        None
    }

    /// Returns an error that describes the refusal, if the request may not have this access.
    ///
    /// The middleware calls this method with the access of the route. A handler calls it for an
    /// access that does not depend only on the path.
    pub(crate) async fn authorize(&self, request: &Parts, access: Access) -> Result<(), Problem> {
        if matches!(access, Access::Write(_)) && !self.writes() {
            let detail = match self.has_authorizer() {
                true => "this API refuses writes: it was built as read-only",
                false => "this API refuses writes: the program installed no authorizer",
            };
            return Err(Problem::new(Code::ReadOnly, detail));
        }
        match &self.0.authorizer {
            Some(authorizer) => Ok(authorizer.authorize(request, access).await?),
            None if access == Access::Payload => Err(Problem::new(
                Code::Denied,
                "this API shows no payloads: the program installed no authorizer",
            )),
            None => Ok(()),
        }
    }

    /// Returns whether the API shows payloads at all.
    pub(crate) fn payloads(&self) -> Payloads {
        self.0.payloads
    }

    /// Returns whether this request may see payloads.
    pub(crate) async fn shows_payloads(&self, request: &Parts) -> bool {
        self.payloads() == Payloads::Shown && self.authorize(request, Access::Payload).await.is_ok()
    }

    /// Returns the limiter of concurrent reads from the store.
    pub(crate) fn reads(&self) -> &Reads {
        &self.0.reads
    }

    /// Counts a write against the rate limit, or fails if the limit is reached.
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

/// Whether the API shows payloads, results and checkpoints of jobs.
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
    /// Payloads are never shown, because they may contain confidential data.
    #[default]
    Hidden,
    /// Payloads are shown to clients that the [`Authorizer`] allows to see them. If the API has no
    /// authorizer, payloads are never shown.
    Shown,
}

/// Builds an [`Api`].
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
#[must_use = "the API is not built before `build` is called"]
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
    /// Sets the node that the probes and `/cluster/status` report on.
    ///
    /// Without a node, `/ready` depends only on the database and on whether live nodes can run the
    /// due jobs, and `/leader` always answers with 503.
    pub fn node(mut self, node: &Node) -> Self {
        self.node = Some(node.clone());
        self
    }

    /// Sets the authorizer. The API calls it before every request except for the probes and the
    /// files of the dashboard. Without an authorizer, the API refuses writes.
    pub fn authorize(mut self, authorizer: impl Authorizer) -> Self {
        self.takes_token = (&authorizer as &dyn Any).is::<Token>();
        self.authorizer = Some(Arc::new(authorizer));
        self
    }

    /// Sets whether the API shows payloads, results and checkpoints. By default they are hidden.
    pub fn payloads(mut self, payloads: Payloads) -> Self {
        self.payloads = payloads;
        self
    }

    /// Sets the limits on requests and connections.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the accepted values of the `Host` header: names or addresses, without a port.
    ///
    /// Loopback names are accepted too, and the probes accept any host. A request with another host
    /// gets the status 421.
    ///
    /// Without this setting, [`serve`](crate::serve) on loopback accepts loopback names only. This
    /// prevents DNS rebinding: the host name of another site resolves to this machine, and pages of
    /// that site can then read the jobs. A nested router, and `serve` on another address, accept
    /// any host without this setting.
    pub fn hosts<I: IntoIterator<Item: Into<String>>>(mut self, hosts: I) -> Self {
        self.hosts = hosts.into_iter().map(Into::into).collect();
        self
    }

    /// Refuses every write, even if the authorizer would allow it.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Sets the trusted proxies: [`serve`](crate::serve) reads the address of the client from their
    /// `X-Forwarded-For` header.
    ///
    /// Without this setting, all clients behind a proxy count as one client. So they share the
    /// number of reads and of wrong tokens that one client is allowed.
    /// The limit [`connections_per_peer`](Limits::connections_per_peer) does not apply to these
    /// proxies.
    pub fn proxies<I: IntoIterator<Item = IpAddr>>(mut self, proxies: I) -> Self {
        self.proxies = proxies.into_iter().collect();
        self
    }

    /// Shows the [versions](ratchet_core::VersionWatch) of these namespaces in `/cluster/status`.
    pub fn versions<I: IntoIterator<Item: Into<String>>>(mut self, namespaces: I) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Lets `/ready` ignore due jobs that no live node can run, and due jobs while no node is live.
    ///
    /// Call this method in programs that also serve other traffic. Otherwise such jobs make the
    /// program not ready and stop that traffic.
    pub fn ready_while_stranded(mut self) -> Self {
        self.ready_while_stranded = true;
        self
    }

    /// Lets [`serve`](crate::serve) listen on addresses other than loopback without an authorizer.
    ///
    /// Every client that can connect may then read everything except payloads. On loopback without
    /// [`hosts`](Self::hosts), the server then accepts any `Host`.
    pub fn allow_remote(mut self) -> Self {
        self.allow_remote = true;
        self
    }

    /// Serves the metrics of this recorder at `/metrics`.
    #[cfg(feature = "prometheus")]
    pub fn prometheus(mut self, handle: PrometheusHandle) -> Self {
        self.prometheus = Some(handle);
        self
    }

    /// Builds the API.
    ///
    /// Inside a Tokio runtime, the background reads begin at once. Outside of a runtime, they begin
    /// with the first request that needs them.
    ///
    /// # Errors
    /// [`BuildError`] if settings are invalid. The error lists all invalid settings.
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

/// The error of [`ApiBuilder::build`], which lists the invalid settings.
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
    /// Returns one message for each problem, with the name of the setting.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}
