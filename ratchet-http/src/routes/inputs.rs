//! Input that several handlers share: ids, names, page sizes and filters.

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

/// The default number of items on a page.
const PAGE: usize = 50;

/// Parses an id from a path, a parameter or a field.
pub(crate) fn id<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Problem> {
    text.parse()
        .map_err(|_| Problem::invalid(field, "expected a UUID"))
}

/// Parses an optional id.
pub(crate) fn optional_id<T: FromStr<Err: Display>>(
    field: &str,
    text: Option<&str>,
) -> Result<Option<T>, Problem> {
    text.map(|text| id(field, text)).transpose()
}

/// Parses an optional name.
pub(crate) fn optional_name(
    field: &'static str,
    text: Option<&str>,
) -> Result<Option<Name>, Problem> {
    Ok(text.map(|text| Name::new(field, text)).transpose()?)
}

/// Returns the size of a page of items that were read in the background; by default the API's
/// limit. Fails if the requested size is 0 or exceeds the limit.
pub(crate) fn page_from_memory(api: &Api, asked: Option<usize>) -> Result<usize, Problem> {
    page(api, Some(asked.unwrap_or(api.limits().page)))
}

/// Returns the size of a page, or an error if the requested size is 0 or exceeds the API's limit.
pub(crate) fn page(api: &Api, asked: Option<usize>) -> Result<usize, Problem> {
    let most = api.limits().page;
    match asked {
        None => Ok(PAGE.min(most)),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(limit) => Err(Problem::invalid(
            "limit",
            format!("limit is {limit}; it must be 1 to {most}"),
        )),
    }
}

/// The parts of a job filter, as texts from the request.
#[derive(Debug, Default)]
pub(crate) struct FilterParts<'a> {
    pub(crate) states: &'a [State],
    pub(crate) queue: Option<&'a str>,
    pub(crate) kind: Option<&'a str>,
    pub(crate) tag: Option<&'a str>,
    pub(crate) batch: Option<&'a str>,
}

impl FilterParts<'_> {
    /// Validates the parts, and returns the filter that they form.
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

/// The parameters of a page of items that are identified by ids.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Before {
    /// Only items older than the item with this id: the value of `next` on the previous page.
    #[schemars(with = "Option<Id>")]
    pub(crate) before: Option<String>,
    /// The maximum number of items on the page; 50 by default.
    #[schemars(range(min = 1))]
    pub(crate) limit: Option<usize>,
}

/// The parameters of a page of items that are identified by ids and were read in the background.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AfterId {
    /// Only items whose ids come after this id: the value of `next` on the previous page.
    #[schemars(with = "Option<Id>")]
    pub(crate) after: Option<String>,
    /// The maximum number of items on the page; by default as many as a page may have.
    #[schemars(range(min = 1))]
    pub(crate) limit: Option<usize>,
}

/// The parameters of a page of items that are identified by names and were read in the background.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AfterNameInMemory {
    /// Only items whose names come after this name: the value of `next` on the previous page.
    #[schemars(with = "Option<NameText>")]
    pub(crate) after: Option<String>,
    /// The maximum number of items on the page; by default as many as a page may have.
    #[schemars(range(min = 1))]
    pub(crate) limit: Option<usize>,
}

/// Reduces `items` to the first page of this size. Returns the identifier of the last item on the
/// page if there are more items.
pub(crate) fn first_page<T>(
    items: &mut Vec<T>,
    size: usize,
    identifier: impl Fn(&T) -> String,
) -> Option<String> {
    let is_last = items.len() <= size;
    items.truncate(size);
    items.last().filter(|_| !is_last).map(identifier)
}

/// The parameters of a page of items that are identified by names.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AfterName {
    /// Only items whose names come after this name: the value of `next` on the previous page.
    #[schemars(with = "Option<NameText>")]
    pub(crate) after: Option<String>,
    /// The maximum number of items on the page; 50 by default.
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
