//! The table of routes, from which both the router and the OpenAPI document are built.

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::api::Api;
use crate::auth::Access;
use crate::problem::Code;

/// A function that returns the schema of a type. The generator then also contains the schemas of
/// the types to which this type refers.
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
    /// Whether a request may also have no body.
    pub(crate) body_is_optional: bool,
    pub(crate) answers: Vec<Answer>,
    /// Whether each request reads from the store, instead of using the results of background reads.
    pub(crate) reads: bool,
    /// The error codes that this route may return, in addition to those that
    /// [`all_codes`](Self::all_codes) adds.
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
    /// A body that is not JSON. The value is the media type.
    Other(&'static str),
}

/// Creates a GET route, which reads.
pub(crate) fn get<H, T>(path: &'static str, handler: H) -> Route
where
    H: Handler<T, Api>,
    T: 'static,
{
    let handler = on(MethodFilter::GET, handler);
    Route::new(Verb::Get, path, handler, Some(Access::Read))
}

/// Creates a POST route, which writes. `access` is the access that a request needs.
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
            body_is_optional: false,
            answers: Vec::new(),
            reads: false,
            codes: Vec::new(),
            handler,
        }
    }

    /// Sets the summary of the route for the OpenAPI document.
    pub(crate) const fn says(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Lets every client use the route. Use this method only for routes whose responses contain no
    /// confidential data.
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

    /// Adds one query parameter for each field of `T`.
    pub(crate) fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(T::json_schema);
        self
    }

    /// Sets the type of the request body.
    pub(crate) fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(schema::<T>);
        self
    }

    /// Sets the type of the request body, which a request may omit.
    pub(crate) fn optional_body<T: JsonSchema>(mut self) -> Self {
        self.body_is_optional = true;
        self.body::<T>()
    }

    /// Adds a response with status 200 and a `T` as JSON.
    pub(crate) fn ok<T: JsonSchema>(self, description: &'static str) -> Self {
        self.answers::<T>(StatusCode::OK, description)
    }

    /// Adds a response with this status and a `T` as JSON.
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

    /// Adds error codes that the route may return. The codes that [`all_codes`](Self::all_codes)
    /// adds need not be given.
    pub(crate) fn refuses(mut self, codes: &[Code]) -> Self {
        self.codes.extend_from_slice(codes);
        self
    }

    /// Returns all error codes that the route may return.
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
