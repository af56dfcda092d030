//! What several handlers take.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use ratchet_core::Name;
use ratchet_core::model::JobFilter;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::api::Api;
use crate::problem::Problem;
use crate::view::State;

/// How many items a page has by default.
const PAGE: usize = 50;

/// The id in a path, a parameter or a field.
pub(crate) fn id<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Problem> {
    text.parse()
        .map_err(|_| Problem::invalid(field, "is not an id, which is a UUID"))
}

/// The same where there may be none.
pub(crate) fn optional_id<T: FromStr<Err: Display>>(
    field: &str,
    text: Option<&str>,
) -> Result<Option<T>, Problem> {
    text.map(|text| id(field, text)).transpose()
}

/// A name where there may be none.
pub(crate) fn optional_name(
    field: &'static str,
    text: Option<&str>,
) -> Result<Option<Name>, Problem> {
    Ok(text.map(|text| Name::new(field, text)).transpose()?)
}

/// The size of a page, within the limits of the API.
pub(crate) fn page(api: &Api, asked: Option<usize>) -> Result<usize, Problem> {
    let most = api.limits().page;
    match asked {
        None => Ok(PAGE.min(most)),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(limit) => Err(Problem::invalid(
            "limit",
            format!("is {limit}; a page has 1 to {most} items"),
        )),
    }
}

/// Which jobs, as the parts of a filter are written.
#[derive(Debug, Default)]
pub(crate) struct FilterParts<'a> {
    pub(crate) states: &'a [State],
    pub(crate) queue: Option<&'a str>,
    pub(crate) kind: Option<&'a str>,
    pub(crate) tag: Option<&'a str>,
    pub(crate) batch: Option<&'a str>,
}

impl FilterParts<'_> {
    /// Checks them.
    pub(crate) fn filter(&self) -> Result<JobFilter, Problem> {
        let mut filter = JobFilter::all();
        for state in self.states {
            let state = (*state).into();
            if !filter.states.contains(&state) {
                filter = filter.state(state);
            }
        }
        filter.queue = optional_name("queue", self.queue)?;
        filter.kind = optional_name("kind", self.kind)?;
        filter.tag = optional_name("tag", self.tag)?;
        filter.batch = optional_id("batch", self.batch)?;
        Ok(filter)
    }
}

/// The parameters of a page of things that have ids.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Before {
    /// Only those that are older than this one: `next` of the page before.
    #[schemars(with = "Option<Id>")]
    pub(crate) before: Option<String>,
    /// The most on a page; 50 by default.
    #[schemars(range(min = 1))]
    pub(crate) limit: Option<usize>,
}

/// The parameters of a page of things that have names.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AfterName {
    /// Only those after this name: `next` of the page before.
    #[schemars(with = "Option<NameText>")]
    pub(crate) after: Option<String>,
    /// The most on a page; 50 by default.
    #[schemars(range(min = 1))]
    pub(crate) limit: Option<usize>,
}

/// The schema of an id.
pub(crate) struct Id;

impl JsonSchema for Id {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Id".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "uuid" })
    }
}

/// The schema of a name.
pub(crate) struct NameText;

impl JsonSchema for NameText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": Name::MAX_BYTES })
    }
}
