//! `ratchet config`: checks the configuration, and shows the values in effect.

use ratchet::ZoneData;
use ratchet_config::{Config, Problem, Setting};
use serde::Serialize;

use crate::app::App;
use crate::args::ConfigCommand;
use crate::exit::Failure;
use crate::output::{DIM, Table, clean, paint};

/// The JSON output of `ratchet config check`.
#[derive(Serialize)]
struct Checked<'a> {
    ok: bool,
    file: Option<String>,
    problems: &'a [Problem],
}

/// The JSON output of `ratchet config show`.
#[derive(Serialize)]
struct Shown {
    file: Option<String>,
    settings: Vec<Setting>,
    /// The time-zone data that this process uses.
    zone_data: ZoneData,
}

#[derive(Serialize)]
struct Sample {
    toml: String,
}

pub(super) fn run(app: &mut App, command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check => check(app),
        ConfigCommand::Show => show(app),
        ConfigCommand::Sample => {
            let toml = Config::sample();
            match app.out.is_json() {
                true => app.out.document(&Sample { toml }),
                false => app.out.raw(toml.as_bytes()),
            }
        }
    }
}

fn check(app: &mut App) -> Result<(), Failure> {
    let path = |path: Option<&std::path::Path>| path.map(|path| path.display().to_string());
    match app.load() {
        Ok(config) => {
            let file = path(config.file());
            if app.out.is_json() {
                let (ok, problems) = (true, &[][..]);
                return app.out.document(&Checked { ok, file, problems });
            }
            let read = file.map_or("no file, only the environment".to_owned(), |file| file);
            app.out
                .line(format_args!("The configuration is valid ({read})."))
        }
        Err(error) if app.out.is_json() => {
            let (ok, file) = (false, path(error.file()));
            let problems = error.problems();
            app.out.document(&Checked { ok, file, problems })?;
            Err(Failure::configuration(error.to_string()))
        }
        Err(error) => Err(Failure::configuration(error.to_string())),
    }
}

fn show(app: &mut App) -> Result<(), Failure> {
    let config = app.config()?;
    if app.out.is_json() {
        let file = config.file().map(|file| file.display().to_string());
        return app.out.document(&Shown {
            file,
            settings: config.settings(),
            zone_data: ZoneData::in_use(),
        });
    }
    let mut table = Table::new(["KEY", "VALUE", "FROM"]);
    for setting in config.settings() {
        let value = setting.value.unwrap_or_default();
        table.row([setting.key.into(), value.into(), setting.origin.into()]);
    }
    app.out.table(&table, "nothing is set")?;
    let zones = format!("time zones {}", ZoneData::in_use());
    app.out.line(paint(DIM, clean(&zones)))
}

#[cfg(test)]
mod tests {
    use ratchet_config::HttpConfig;

    /// Checks that the defaults in the table of configuration keys equal the limits of
    /// `ratchet-http`. The table repeats these limits, because `ratchet-config` does not depend on
    /// `ratchet-http`.
    #[test]
    fn the_limits_of_the_sample_are_those_that_hold_anyway() {
        let limits = ratchet_http::Limits::default();
        let table = [
            ("max_body", limits.body_bytes.to_string()),
            ("max_page", limits.page.to_string()),
            ("max_clients", limits.event_clients.to_string()),
            ("writes_per_second", limits.writes_per_second.to_string()),
            (
                "request_timeout",
                format!("\"{:?}\"", limits.request_timeout),
            ),
        ];
        for (name, default) in table {
            let mut keys = HttpConfig::KEYS.iter();
            let told = keys
                .find(|key| key.name == name)
                .and_then(|key| key.default);
            assert_eq!(told, Some(default.as_str()), "{name}");
        }
    }
}
