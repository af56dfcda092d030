//! The table that the router and the OpenAPI document are both made from.

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::api::Api;
use crate::auth::Access;
use crate::problem::Code;

/// Makes the schema of a type, and leaves what it refers to with the generator.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One route: where it is, who may use it, what it takes and answers, and what handles it.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// Where, with the names of its parts in braces.
    pub(crate) path: &'static str,
    /// A summary in a few words.
    pub(crate) summary: &'static str,
    /// Which callers may use it; `None` for all.
    pub(crate) access: Option<Access>,
    /// The parameters of the path.
    pub(crate) parts: Vec<(&'static str, SchemaOf)>,
    pub(crate) query: Option<SchemaOf>,
    pub(crate) body: Option<SchemaOf>,
    pub(crate) answers: Vec<Answer>,
    /// Whether it reads from the store, and not what was read in the background.
    pub(crate) reads: bool,
    /// How it may be refused, apart from what every route of its access may be refused for.
    pub(crate) codes: Vec<Code>,
    pub(crate) handler: MethodRouter<Api>,
}

/// The methods there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
}

impl Verb {
    /// Its name in the document.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
        }
    }
}

/// One way in which a route answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) description: &'static str,
    pub(crate) content: Content,
}

/// The body of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    Json(SchemaOf),
    /// Of this type, and not JSON.
    Other(&'static str),
}

/// A route that reads.
pub(crate) fn get<H, T>(path: &'static str, handler: H) -> Route
where
    H: Handler<T, Api>,
    T: 'static,
{
    let handler = on(MethodFilter::GET, handler);
    Route::new(Verb::Get, path, handler, Some(Access::Read))
}

/// A route that changes something; it must say [what](Route::access).
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

    /// Says what it does.
    pub(crate) const fn says(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Lets everybody use it: it holds nothing worth protecting.
    pub(crate) const fn open(mut self) -> Self {
        self.access = None;
        self
    }

    /// Says that it reads from the store for each request: few do so at once.
    pub(crate) const fn reads(mut self) -> Self {
        self.reads = true;
        self
    }

    /// Says what a part of the path is.
    pub(crate) fn part<T: JsonSchema>(mut self, name: &'static str) -> Self {
        self.parts.push((name, schema::<T>));
        self
    }

    /// Takes parameters behind the `?`, the fields of a type.
    pub(crate) fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(T::json_schema);
        self
    }

    /// Takes a body.
    pub(crate) fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(schema::<T>);
        self
    }

    /// Answers with 200 and JSON of this type.
    pub(crate) fn ok<T: JsonSchema>(self, description: &'static str) -> Self {
        self.answers::<T>(StatusCode::OK, description)
    }

    /// Answers with this status and JSON of this type.
    pub(crate) fn answers<T: JsonSchema>(
        self,
        status: StatusCode,
        description: &'static str,
    ) -> Self {
        self.answer(status, description, Content::Json(schema::<T>))
    }

    /// Answers with this status and content.
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

    /// May refuse for these reasons, apart from those that all have.
    pub(crate) fn refuses(mut self, codes: &[Code]) -> Self {
        self.codes.extend_from_slice(codes);
        self
    }

    /// Every reason for which it may refuse.
    pub(crate) fn all_codes(&self) -> Vec<Code> {
        let mut codes = self.codes.clone();
        // Of a request that cannot be right, for every route; the store or the time may fail as
        // well.
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
