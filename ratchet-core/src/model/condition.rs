//! Conditions: how a parent job must end before its children may run.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

use crate::error::InvalidInput;
use crate::json::Json;
use crate::limits::MAX_CONDITION_BYTES;
use crate::state::JobState;

/// How a parent job must end before its children may run.
///
/// ```
/// use ratchet::{Condition, JobState, Json};
///
/// let large = Condition::result_is("/size", &"large");
/// let result = Json::parse("result", r#"{"size": "large"}"#)?;
/// assert!(large.met_by(JobState::Succeeded, Some(&result)));
/// assert!(!large.met_by(JobState::Failed, None));
/// # Ok::<(), ratchet::InvalidInput>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// The parent succeeded.
    Succeeded,
    /// The parent failed: it is a dead letter. A cancelled parent does not meet this condition.
    Failed,
    /// The parent has ended, whether it succeeded, failed or was cancelled.
    Ended,
    /// The parent succeeded, and its result has this value at this JSON pointer.
    ResultIs {
        /// A JSON pointer, such as `/items/0/size`. An empty pointer selects the whole result.
        pointer: String,
        /// The expected value. An integer never equals a floating-point number: 1 is not 1.0.
        #[serde(with = "crate::json::text")]
        value: Json,
    },
    /// The parent succeeded, and its result does not have this value at this JSON pointer. A result
    /// without this place meets the condition.
    ResultIsNot {
        /// A JSON pointer, as in [`ResultIs`](Self::ResultIs).
        pointer: String,
        /// The other value.
        #[serde(with = "crate::json::text")]
        value: Json,
    },
    /// The parent succeeded, and its result has a number at this JSON pointer that compares like
    /// this with a given number. Anything else than a number does not meet the condition.
    ResultCompares {
        /// A JSON pointer, as in [`ResultIs`](Self::ResultIs).
        pointer: String,
        /// The side of `number` on which the result must be.
        comparison: Comparison,
        /// A number. Integers and floating-point numbers are compared by their exact values: 1
        /// equals 1.0.
        #[serde(with = "crate::json::text")]
        number: Json,
    },
    /// The parent meets `condition`, and none of the conditions `earlier`. [`Condition::choice`]
    /// creates these conditions.
    FirstMatch {
        /// The conditions of the earlier siblings.
        earlier: Vec<Self>,
        /// The condition of this job.
        condition: Box<Self>,
    },
}

/// How a number in a result must compare with a given number, see [`Condition::result_compares`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// The result is less than the number.
    Less,
    /// The result is at most the number.
    AtMost,
    /// The result is at least the number.
    AtLeast,
    /// The result is greater than the number.
    Greater,
}

impl Comparison {
    const ALL: [(Self, &str); 4] = [
        (Self::Less, "less"),
        (Self::AtMost, "at_most"),
        (Self::AtLeast, "at_least"),
        (Self::Greater, "greater"),
    ];

    /// Returns the word for this comparison, such as `at_least`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        let [less, at_most, at_least, greater] = Self::ALL.map(|(_, word)| word);
        match self {
            Self::Less => less,
            Self::AtMost => at_most,
            Self::AtLeast => at_least,
            Self::Greater => greater,
        }
    }

    fn allows(self, order: Ordering) -> bool {
        match self {
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::AtLeast => order.is_ge(),
            Self::Greater => order.is_gt(),
        }
    }
}

impl Condition {
    /// Creates the condition that the parent succeeded and its result has this value at this JSON
    /// pointer. If the value does not serialize, the enqueue fails.
    #[must_use]
    pub fn result_is<T: Serialize + ?Sized>(pointer: &str, value: &T) -> Self {
        Self::ResultIs {
            pointer: pointer.to_owned(),
            value: encoded(value),
        }
    }

    /// Creates the condition that the parent succeeded and its result does not have this value at
    /// this JSON pointer. If the value does not serialize, the enqueue fails.
    ///
    /// ```
    /// use ratchet::{Condition, JobState, Json};
    ///
    /// let known = Condition::result_is_not("/country", &());
    /// let result = Json::parse("result", r#"{"country": "CL"}"#)?;
    /// assert!(known.met_by(JobState::Succeeded, Some(&result)));
    /// # Ok::<(), ratchet::InvalidInput>(())
    /// ```
    #[must_use]
    pub fn result_is_not<T: Serialize + ?Sized>(pointer: &str, value: &T) -> Self {
        Self::ResultIsNot {
            pointer: pointer.to_owned(),
            value: encoded(value),
        }
    }

    /// Creates the condition that the parent succeeded and its result has a number at this JSON
    /// pointer that compares like this with `number`. If `number` is not a number, or is infinite
    /// or NaN, the enqueue fails.
    ///
    /// ```
    /// use ratchet::{Comparison, Condition, JobState, Json};
    ///
    /// let many = Condition::result_compares("/rows", Comparison::AtLeast, &1_000);
    /// let result = Json::parse("result", r#"{"rows": 2500}"#)?;
    /// assert!(many.met_by(JobState::Succeeded, Some(&result)));
    /// # Ok::<(), ratchet::InvalidInput>(())
    /// ```
    #[must_use]
    pub fn result_compares<T: Serialize + ?Sized>(
        pointer: &str,
        comparison: Comparison,
        number: &T,
    ) -> Self {
        Self::ResultCompares {
            pointer: pointer.to_owned(),
            comparison,
            number: encoded(number),
        }
    }

    /// Makes each of these conditions exclude the earlier ones, and adds a last one for all other
    /// results. Use each returned condition for one child of the same parent: if the parent
    /// succeeds, exactly one child runs, namely the first whose condition is met, or else the last
    /// child. The other children are cancelled.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ratchet::{Comparison, Condition, NewJob, Ratchet};
    ///
    /// let client = Ratchet::client(ratchet::connect("memory:").await?);
    /// let count = client.enqueue(NewJob::new("count", &1)).await?.id();
    /// let [huge, some, otherwise] = Condition::choice([
    ///     Condition::result_compares("", Comparison::Greater, &1_000_000),
    ///     Condition::result_compares("", Comparison::Greater, &0),
    /// ])
    /// .try_into()
    /// .expect("there is one more than was given");
    /// client.enqueue(NewJob::new("split", &1).after(count, huge)).await?;
    /// client.enqueue(NewJob::new("process", &1).after(count, some)).await?;
    /// client.enqueue(NewJob::new("report empty", &1).after(count, otherwise)).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn choice(conditions: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut earlier = Vec::new();
        let mut choice = Vec::new();
        for condition in conditions.into_iter().chain([Self::Succeeded]) {
            choice.push(Self::FirstMatch {
                earlier: earlier.clone(),
                condition: Box::new(condition.clone()),
            });
            earlier.push(condition);
        }
        choice
    }

    /// Returns whether a job that ended in this state with this result meets the condition.
    #[must_use]
    pub fn met_by(&self, state: JobState, result: Option<&Json>) -> bool {
        let succeeded = state == JobState::Succeeded;
        match self {
            Self::Succeeded => succeeded,
            Self::Failed => state == JobState::Failed,
            Self::Ended => state.is_terminal(),
            Self::ResultIs { pointer, value } => {
                succeeded && has_value(result, pointer, value) == Some(true)
            }
            Self::ResultIsNot { pointer, value } => {
                succeeded && has_value(result, pointer, value) == Some(false)
            }
            Self::ResultCompares {
                pointer,
                comparison,
                number,
            } => {
                let order = compare_at(result, pointer, number);
                succeeded && order.is_some_and(|order| comparison.allows(order))
            }
            Self::FirstMatch { earlier, condition } => {
                condition.met_by(state, result)
                    && !earlier.iter().any(|other| other.met_by(state, result))
            }
        }
    }

    /// Returns the text that stores save for the condition.
    pub(super) fn to_stored(&self) -> String {
        let at = |pointer: &str, value: &Json| {
            let pointer = Value::from(pointer);
            format!("[{pointer},{}]", value.as_str())
        };
        match self {
            Self::Succeeded => "succeeded".to_owned(),
            Self::Failed => "failed".to_owned(),
            Self::Ended => "ended".to_owned(),
            Self::ResultIs { pointer, value } => format!("result_is {}", at(pointer, value)),
            Self::ResultIsNot { pointer, value } => {
                format!("result_is_not {}", at(pointer, value))
            }
            Self::ResultCompares {
                pointer,
                comparison,
                number,
            } => format!("result_{} {}", comparison.as_str(), at(pointer, number)),
            Self::FirstMatch { earlier, condition } => {
                let all = earlier.iter().chain([&**condition]);
                let all: Vec<String> = all.map(Self::to_stored).collect();
                format!("first_match {}", Value::from(all))
            }
        }
    }

    /// Reads a condition from the text that [`to_stored`](Self::to_stored) returned.
    pub(super) fn from_stored(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        if rest.is_empty() {
            return match word {
                "succeeded" => Some(Self::Succeeded),
                "failed" => Some(Self::Failed),
                "ended" => Some(Self::Ended),
                _ => None,
            };
        }
        if word == "first_match" {
            let all: Vec<String> = serde_json::from_str(rest).ok()?;
            let all = all.iter().map(|text| Self::from_stored(text));
            let mut earlier = all.collect::<Option<Vec<Self>>>()?;
            let condition = Box::new(earlier.pop()?);
            return Some(Self::FirstMatch { earlier, condition });
        }
        let At(pointer, value) = serde_json::from_str(rest).ok()?;
        let value = Json::from_stored(value.get());
        match word.strip_prefix("result_")? {
            "is" => Some(Self::ResultIs { pointer, value }),
            "is_not" => Some(Self::ResultIsNot { pointer, value }),
            word => {
                let known = Comparison::ALL.into_iter();
                let (comparison, _) = known.into_iter().find(|(_, known)| *known == word)?;
                Some(Self::ResultCompares {
                    pointer,
                    comparison,
                    number: value,
                })
            }
        }
    }

    /// Refuses a condition whose parts are malformed or too large to store.
    pub(super) fn validate(&self) -> Result<(), InvalidInput> {
        self.check_parts()?;
        let bytes = self.to_stored().len();
        if bytes > MAX_CONDITION_BYTES {
            return refuse(format!(
                "has {bytes} bytes; at most {MAX_CONDITION_BYTES} are allowed"
            ));
        }
        Ok(())
    }

    fn check_parts(&self) -> Result<(), InvalidInput> {
        let (pointer, value) = match self {
            Self::Succeeded | Self::Failed | Self::Ended => return Ok(()),
            Self::ResultIs { pointer, value } | Self::ResultIsNot { pointer, value } => {
                (pointer, value)
            }
            Self::ResultCompares {
                pointer, number, ..
            } => {
                if number.decode::<Number>().is_err() {
                    return refuse("compares with a value that is not a finite number".to_owned());
                }
                (pointer, number)
            }
            Self::FirstMatch { earlier, condition } => {
                let mut all = earlier.iter().chain([&**condition]);
                return all.try_for_each(|one| match one {
                    Self::FirstMatch { .. } => refuse("is a choice in a choice".to_owned()),
                    other => other.check_parts(),
                });
            }
        };
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return refuse("has a JSON pointer that does not begin with `/`".to_owned());
        }
        if Json::parse("condition", value.as_str()).is_err() {
            return refuse("has a value that is not JSON".to_owned());
        }
        Ok(())
    }
}

fn refuse(problem: String) -> Result<(), InvalidInput> {
    Err(InvalidInput::new("condition", problem))
}

/// Returns the value as JSON, or as an empty text, which the validation refuses.
fn encoded<T: Serialize + ?Sized>(value: &T) -> Json {
    Json::encode("parent", value).unwrap_or_else(|_| Json::from_stored(""))
}

/// The stored form of a condition on one place of a result: the pointer and the value.
#[derive(Deserialize)]
struct At(String, Box<RawValue>);

/// Returns the result as a value. A missing result counts as `null`. `None` if the result is
/// not JSON.
fn decoded(result: Option<&Json>) -> Option<Value> {
    result.map_or(Some(Value::Null), |result| result.decode().ok())
}

/// Returns whether the result has this value at this JSON pointer. `None` if one of them is not
/// JSON.
fn has_value(result: Option<&Json>, pointer: &str, value: &Json) -> Option<bool> {
    let value: Value = value.decode().ok()?;
    Some(decoded(result)?.pointer(pointer) == Some(&value))
}

/// Returns how the number at this JSON pointer of the result compares with `number`. `None` if one
/// of them is not a number.
fn compare_at(result: Option<&Json>, pointer: &str, number: &Json) -> Option<Ordering> {
    let result = decoded(result)?;
    let found = result.pointer(pointer)?.as_number()?;
    compare(found, &number.decode().ok()?)
}

/// Compares two numbers by their exact values.
fn compare(one: &Number, other: &Number) -> Option<Ordering> {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        (Some(one), None) => compare_with_float(one, other.as_f64()?),
        (None, Some(other)) => compare_with_float(other, one.as_f64()?).map(Ordering::reverse),
        (None, None) => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

/// Compares an integer of at most 64 bits with a floating-point number, which need not be exact as
/// an integer, nor the integer as a floating-point number.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the conversion saturates, and every 64-bit integer is well inside the range"
)]
fn compare_with_float(integer: i128, float: f64) -> Option<Ordering> {
    let whole = float.trunc() as i128;
    let order = integer.cmp(&whole);
    match order {
        Ordering::Equal => 0.0.partial_cmp(&float.fract()),
        _ => Some(order),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse("json", text).unwrap()
    }

    fn meets(condition: &Condition, result: &str) -> bool {
        condition.met_by(JobState::Succeeded, Some(&json(result)))
    }

    const ENDS: [JobState; 3] = [JobState::Succeeded, JobState::Failed, JobState::Cancelled];

    #[test]
    fn each_condition_is_met_by_its_ends_only() {
        let met = |condition: &Condition| ENDS.map(|state| condition.met_by(state, None));
        assert_eq!(met(&Condition::Succeeded), [true, false, false]);
        assert_eq!(met(&Condition::Failed), [false, true, false]);
        assert_eq!(met(&Condition::Ended), [true, true, true]);
        for only_successes in [
            Condition::result_is("", &()),
            Condition::result_is_not("", &1),
        ] {
            assert_eq!(met(&only_successes), [true, false, false]);
        }
        let number = Condition::result_compares("", Comparison::AtLeast, &0);
        for state in ENDS {
            assert_eq!(
                number.met_by(state, Some(&json("1"))),
                state == JobState::Succeeded
            );
        }
        for state in JobState::ALL
            .into_iter()
            .filter(|state| !state.is_terminal())
        {
            assert!(!Condition::Ended.met_by(state, None));
        }
    }

    #[test]
    fn results_are_compared_by_value_at_the_place() {
        let result = r#"{"a": [ {"b": 1.0}, "é" ], "c": null}"#;
        for (pointer, value, expected) in [
            ("/a/0", r#"{"b":1.0}"#, true),
            ("/a/1", r#""\u00e9""#, true),
            ("/c", "null", true),
            ("/a/0/b", "1", false),
            ("/d", "null", false),
            ("/a/2", "null", false),
        ] {
            let (pointer, value) = (pointer.to_owned(), json(value));
            let (other_pointer, other_value) = (pointer.clone(), value.clone());
            let is = Condition::ResultIs { pointer, value };
            assert_eq!(meets(&is, result), expected, "{is:?}");
            let is_not = Condition::ResultIsNot {
                pointer: other_pointer,
                value: other_value,
            };
            assert_eq!(meets(&is_not, result), !expected, "{is_not:?}");
        }
        let broken = Json::from_stored("{");
        for any in [
            Condition::result_is("", &1),
            Condition::result_is_not("", &1),
        ] {
            assert!(!any.met_by(JobState::Succeeded, Some(&broken)));
        }
    }

    #[test]
    fn numbers_are_compared_by_their_exact_values() {
        let order = |one: &str, other: &str| {
            let decode = |text: &str| serde_json::from_str::<Number>(text).unwrap();
            compare(&decode(one), &decode(other)).unwrap()
        };
        // From the smallest to the largest. The pairs near 2^53 and 2^63 are equal as f64.
        let ascending = [
            "-1e300",
            "-9223372036854775808",
            "-2.5",
            "-2",
            "-1.5",
            "0",
            "0.5",
            "1",
            "9007199254740992",
            "9007199254740993",
            "9223372036854775807",
            "9223372036854775808.0",
            "9223372036854775809",
            "18446744073709551615",
            "18446744073709551616.0",
            "1e300",
        ];
        for (place, one) in ascending.iter().enumerate() {
            for (other_place, other) in ascending.iter().enumerate() {
                assert_eq!(order(one, other), place.cmp(&other_place), "{one}, {other}");
            }
        }
        assert_eq!(order("1", "1.0"), Ordering::Equal);
        assert_eq!(order("-0.0", "0"), Ordering::Equal);
    }

    #[test]
    fn each_comparison_allows_its_side() {
        use Comparison::{AtLeast, AtMost, Greater, Less};
        for (comparison, allowed) in [
            (Less, [true, false, false]),
            (AtMost, [true, true, false]),
            (AtLeast, [false, true, true]),
            (Greater, [false, false, true]),
        ] {
            let condition = Condition::result_compares("/n", comparison, &2);
            let met = [1, 2, 3].map(|n| meets(&condition, &format!(r#"{{"n": {n}}}"#)));
            assert_eq!(met, allowed, "{comparison:?}");
            for no_number in [r#"{"n": "2"}"#, r#"{"n": null}"#, "{}", "2"] {
                assert!(!meets(&condition, no_number), "{comparison:?} {no_number}");
            }
        }
    }

    #[test]
    fn exactly_one_condition_of_a_choice_is_met_by_a_success() {
        let choice = Condition::choice([
            Condition::result_compares("", Comparison::Greater, &10),
            Condition::result_compares("", Comparison::Greater, &0),
            Condition::Failed,
        ]);
        let met = |state, result: &str| {
            let result = json(result);
            let met = choice.iter().map(|one| one.met_by(state, Some(&result)));
            met.collect::<Vec<bool>>()
        };
        let (yes, no) = (true, false);
        assert_eq!(met(JobState::Succeeded, "11"), [yes, no, no, no]);
        assert_eq!(met(JobState::Succeeded, "1"), [no, yes, no, no]);
        assert_eq!(met(JobState::Succeeded, "-1"), [no, no, no, yes]);
        assert_eq!(met(JobState::Failed, "11"), [no, no, yes, no]);
        assert_eq!(met(JobState::Cancelled, "11"), [no, no, no, no]);
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let value = json(r#"{ "a": "b c" }"#);
        let pointer = "/x \"~1".to_owned();
        let is = Condition::ResultIs { pointer, value };
        let mut all = vec![
            Condition::Succeeded,
            Condition::Failed,
            Condition::Ended,
            is.clone(),
            Condition::result_is_not("/a", &1),
        ];
        let comparisons = Comparison::ALL.into_iter();
        all.extend(comparisons.map(|(one, _)| Condition::result_compares("/n", one, &1.5)));
        all.extend(Condition::choice([is, Condition::Failed]));
        for condition in all {
            assert_eq!(condition.validate(), Ok(()));
            let stored = condition.to_stored();
            assert_eq!(Condition::from_stored(&stored), Some(condition), "{stored}");
        }
        for text in [
            "",
            "other",
            "succeeded 1",
            "result_is",
            "result_is [1]",
            "result_like [\"\",1]",
            "first_match []",
            "first_match [\"other\"]",
        ] {
            assert_eq!(Condition::from_stored(text), None, "{text}");
        }
    }

    #[test]
    fn conditions_that_make_no_sense_are_refused() {
        let large = "x".repeat(MAX_CONDITION_BYTES);
        let a_choice = Condition::choice([Condition::Failed]);
        for bad in [
            Condition::result_is("a", &1),
            Condition::result_is_not("a", &1),
            Condition::ResultIs {
                pointer: String::new(),
                value: Json::from_stored("{"),
            },
            Condition::result_is(&format!("/{large}"), &1),
            Condition::result_compares("a", Comparison::Less, &1),
            Condition::result_compares("", Comparison::Less, &f64::NAN),
            Condition::result_compares("", Comparison::Less, &f64::INFINITY),
            Condition::result_compares("", Comparison::Less, "1"),
            Condition::choice(a_choice).remove(0),
            Condition::choice([Condition::result_is("a", &1)]).remove(0),
        ] {
            let error = bad.validate().unwrap_err();
            assert_eq!(error.field(), "condition", "{bad:?}");
        }
    }
}
