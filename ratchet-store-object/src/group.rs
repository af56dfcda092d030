//! Calls that wait for the log, and which of their commands the next segment contains.

use std::mem;

use ratchet_core::memory::{Answer, Command, Entry, Snapshot};
use tokio::sync::oneshot;

use crate::error::{Failure, Result};
use crate::log::Hooks;

/// The most commands in one segment.
const MAX_COMMANDS: usize = 4_096;
/// The size of a segment in bytes after which it gets no more commands.
const MAX_BYTES: usize = 4 << 20;

/// A call that waits for the log.
pub(crate) enum Request {
    Append(Append),
    /// A call that reads the data.
    Refresh(oneshot::Sender<Result<()>>),
    /// A look for commands of other processes, which needs no exact time.
    Look(oneshot::Sender<Result<()>>),
}

/// A call with a command.
pub(crate) struct Append {
    /// The command as all processes decode it from `text`, this one too: so all apply the same.
    command: Command<'static>,
    /// The encoded command.
    pub(crate) text: String,
    answer: oneshot::Sender<Result<Answer>>,
}

impl Append {
    pub(crate) fn new(
        command: &Command<'_>,
        answer: oneshot::Sender<Result<Answer>>,
    ) -> Result<Self> {
        let (text, command) = encode(command)?;
        Ok(Self {
            command,
            text,
            answer,
        })
    }

    pub(crate) fn is_awaited(&self) -> bool {
        !self.answer.is_closed()
    }

    /// Applies the command to the data, and answers the call.
    pub(crate) fn apply(self, data: &mut Snapshot, at: i64, hooks: &Hooks) {
        hooks.apply(&self.command);
        let answer = data.apply(&Entry::new(at, self.command));
        // The caller may have gone.
        let _ = self.answer.send(Ok(answer));
    }
}

/// Encodes a command, and decodes it again. So no segment contains a command that processes like
/// this one cannot decode.
fn encode(command: &Command<'_>) -> Result<(String, Command<'static>)> {
    let unencodable = |error: serde_json::Error| Failure::unencodable("the command", &error);
    let text = serde_json::to_string(command).map_err(unencodable)?;
    let decoded = serde_json::from_str(&text).map_err(unencodable)?;
    Ok((text, decoded))
}

impl Request {
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Append(append) => append.is_awaited(),
            Self::Refresh(done) | Self::Look(done) => !done.is_closed(),
        }
    }

    pub(crate) fn fail(self, failure: &Failure) {
        match self {
            Self::Append(append) => drop(append.answer.send(Err(failure.clone()))),
            Self::Refresh(done) | Self::Look(done) => drop(done.send(Err(failure.clone()))),
        }
    }
}

/// The calls of the next segment.
#[derive(Default)]
pub(crate) struct Plan {
    /// The calls whose commands change something: the segment contains them.
    pub(crate) writes: Vec<Append>,
    /// The calls that need only current data.
    pub(crate) reads: Vec<Request>,
}

impl Plan {
    /// Takes from `group` the calls of the next segment, whose commands get the time `at`. If this
    /// process may not put now, those that change something remain.
    pub(crate) fn take(group: &mut Vec<Request>, data: &Snapshot, at: i64, may_put: bool) -> Self {
        let mut plan = Self::default();
        let mut bytes = 0;
        let mut requests = mem::take(group).into_iter();
        for request in requests.by_ref() {
            match request {
                Request::Append(append) if data.unchanged_by(&append.command, at).is_none() => {
                    if !may_put {
                        group.push(Request::Append(append));
                        continue;
                    }
                    let depends = append.command.depends_on_data();
                    let is_full = bytes >= MAX_BYTES || plan.writes.len() >= MAX_COMMANDS;
                    if is_full || (depends && !plan.writes.is_empty()) {
                        group.push(Request::Append(append));
                        break;
                    }
                    let mut append = append;
                    if depends {
                        data.complete(&mut append.command, at);
                        match encode(&append.command) {
                            Ok((text, command)) => {
                                append.text = text;
                                append.command = command;
                            }
                            Err(failure) => {
                                Request::Append(append).fail(&failure);
                                continue;
                            }
                        }
                    }
                    bytes += append.text.len();
                    plan.writes.push(append);
                }
                read => plan.reads.push(read),
            }
        }
        group.extend(requests);
        plan
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.reads.is_empty()
    }

    /// Returns whether a caller still waits for a command of the segment.
    pub(crate) fn is_awaited(&self) -> bool {
        self.writes.iter().any(Append::is_awaited)
    }

    /// Applies the commands of the segment to the data, and answers the calls.
    pub(crate) fn apply(&mut self, data: &mut Snapshot, at: i64, hooks: &Hooks) {
        for write in mem::take(&mut self.writes) {
            write.apply(data, at, hooks);
        }
    }

    /// Answers the calls that change nothing. The data is current. The others remain.
    pub(crate) fn answer_reads(&mut self, data: &Snapshot, at: i64) {
        for request in mem::take(&mut self.reads) {
            match request {
                Request::Refresh(done) | Request::Look(done) => drop(done.send(Ok(()))),
                Request::Append(append) => match data.unchanged_by(&append.command, at) {
                    Some(answer) => drop(append.answer.send(Ok(answer))),
                    None => self.reads.push(Request::Append(append)),
                },
            }
        }
    }

    /// Puts the calls that have no answer yet in front of the others.
    pub(crate) fn give_back(self, group: &mut Vec<Request>) {
        let rest = mem::take(group);
        group.extend(self.writes.into_iter().map(Request::Append));
        group.extend(self.reads);
        group.extend(rest);
    }

    pub(crate) fn fail(self, failure: &Failure) {
        let mut calls = Vec::new();
        self.give_back(&mut calls);
        for call in calls {
            call.fail(failure);
        }
    }
}

#[cfg(test)]
mod tests {
    use ratchet_core::model::NewJob;

    use super::*;

    /// The serialized form lacks why a job is invalid.
    #[test]
    fn a_process_applies_its_own_commands_as_others_decode_them() {
        let jobs = [NewJob::new("", &())];
        let command = Command::Enqueue(jobs[..].into());
        let given = format!("{command:?}");
        let append = Append::new(&command, oneshot::channel().0).unwrap();
        let decoded: Command<'_> = serde_json::from_str(&append.text).unwrap();
        assert_eq!(format!("{:?}", append.command), format!("{decoded:?}"));
        assert_ne!(format!("{:?}", append.command), given);
    }
}
