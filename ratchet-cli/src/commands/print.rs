//! `ratchet completions` and `ratchet man`, generated from the command line parser.

use std::io::Write;

use clap_mangen::Man as Page;

use crate::app::App;
use crate::args::{Completions, Man, command};
use crate::exit::Failure;

pub(super) fn completions(app: &mut App, what: Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(what.shell, &mut command(), "ratchet", &mut script);
    app.out.raw(&script)
}

pub(super) fn man(app: &mut App, what: &Man) -> Result<(), Failure> {
    if let Some(dir) = &what.dir {
        std::fs::create_dir_all(dir)?;
        clap_mangen::generate_to(command(), dir)?;
        return app
            .out
            .line(format_args!("The pages are in {}.", dir.display()));
    }
    let mut page = Vec::new();
    Page::new(command()).render(&mut page)?;
    page.flush()?;
    app.out.raw(&page)
}
