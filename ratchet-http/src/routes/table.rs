//! The table of routes, from which both the router and the OpenAPI document are built.

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::api::Api;
use crate::auth::Access;
use crate::problem::Code;

/// A function that returns the schema of a type. The generator keeps the schemas of the types that
/// this type refers to.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One route: its path, access, input, responses and handler.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// The path, with the names of its parameters in braces.
    pub(crate) path: &'static str,
    /// A short summary for the OpenAPI document.
    pub(crate) summary: &'static str,
    /// The access that a request needs; `None` if every client may use the route.
    pub(crate) access: Option<Access>,
    /// The parameters of the path.
    pub(crate) parts: Vec<(&'static str, SchemaOf)>,
    pub(crate) query: Option<SchemaOf>,
    pub(crate) body: Option<SchemaOf>,
    pub(crate) answers: Vec<Answer>,
    /// Whether each request reads from the store, instead of using the results of background reads.
    pub(crate) reads: bool,
    /// The codes of the route's refusals, without those that [`all_codes`](Self::all_codes) adds.
    pub(crate) codes: Vec<Code>,
    pub(crate) handler: MethodRouter<Api>,
}

/// The HTTP methods of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
}

impl Verb {
    /// Returns the name of the method in the OpenAPI document.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
        }
    }
}

/// One response of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) description: &'static str,
    pub(crate) content: Content,
}

/// The body of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    Json(SchemaOf),
    /// A body of this media type, which is not JSON.
    Other(&'static str),
}

/// Creates a route that reads.
pub(crate) fn get<H, T>(path: &'static str, handler: H) -> Route
where
    H: Handler<T, Api>,
    T: 'static,
{
    let handler = on(MethodFilter::GET, handler);
    Route::new(Verb::Get, path, handler, Some(Access::Read))
}

/// Creates a route that writes, with the [access](Route::access) that it needs.
pub(crate) fn post<H, T>(path: &'static str, access: Access, handler: H) -> Route
where
    H: Handler<T, Api>,
    T: 'static,
{
    let handler = on(MethodFilter::POST, handler);
    Route::new(Verb::Post, path, handler, Some(access))
}

impl Route {
    const fn new(
        verb: Verb,
        path: &'static str,
        handler: MethodRouter<Api>,
        access: Option<Access>,
    ) -> Self {
        Self {
            verb,
            path,
            summary: "",
            access,
            parts: Vec::new(),
            query: None,
            body: None,
            answers: Vec::new(),
            reads: false,
            codes: Vec::new(),
            handler,
        }
    }

    /// Sets the summary.
    pub(crate) const fn says(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Lets every client use the route. For routes that reveal nothing worth protecting.
    pub(crate) const fn open(mut self) -> Self {
        self.access = None;
        self
    }

    /// Marks the route as reading from the store for each request, so that the limit of concurrent
    /// reads applies.
    pub(crate) const fn reads(mut self) -> Self {
        self.reads = true;
        self
    }

    /// Adds a parameter of the path.
    pub(crate) fn part<T: JsonSchema>(mut self, name: &'static str) -> Self {
        self.parts.push((name, schema::<T>));
        self
    }

    /// Adds query parameters: the fields of a type.
    pub(crate) fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(T::json_schema);
        self
    }

    /// Sets the type of the request body.
    pub(crate) fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(schema::<T>);
        self
    }

    /// Adds a response with status 200 and JSON of this type.
    pub(crate) fn ok<T: JsonSchema>(self, description: &'static str) -> Self {
        self.answers::<T>(StatusCode::OK, description)
    }

    /// Adds a response with this status and JSON of this type.
    pub(crate) fn answers<T: JsonSchema>(
        self,
        status: StatusCode,
        description: &'static str,
    ) -> Self {
        self.answer(status, description, Content::Json(schema::<T>))
    }

    /// Adds a response with this status and content.
    pub(crate) fn answer(
        mut self,
        status: StatusCode,
        description: &'static str,
        content: Content,
    ) -> Self {
        self.answers.push(Answer {
            status,
            description,
            content,
        });
        self
    }

    /// Adds codes of refusals. Those that [`all_codes`](Self::all_codes) adds need not be given.
    pub(crate) fn refuses(mut self, codes: &[Code]) -> Self {
        self.codes.extend_from_slice(codes);
        self
    }

    /// Returns the codes of all refusals.
    pub(crate) fn all_codes(&self) -> Vec<Code> {
        let mut codes = self.codes.clone();
        // Every route may refuse invalid input, fail, or exceed its timeout.
        codes.extend([Code::Invalid, Code::Internal, Code::Timeout]);
        if self.access.is_some() {
            codes.extend([Code::WrongHost, Code::Unauthorized]);
            codes.extend([Code::Denied, Code::Malformed]);
            codes.extend([Code::TooManyRequests, Code::TooManyAttempts]);
        }
        if self.verb == Verb::Post {
            codes.extend([Code::ReadOnly, Code::TooLarge, Code::TooSlow]);
        }
        if self.reads {
            codes.push(Code::TooManyClients);
        }
        if self.body.is_some() {
            codes.push(Code::UnsupportedMediaType);
        }
        codes
    }
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}
