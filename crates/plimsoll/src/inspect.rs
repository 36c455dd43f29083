//! `plimsoll inspect`: what a model is, from its headers and configurations. No weight is read.

mod facts;
mod listed_parts;
mod part_files;
mod table;

use crate::args::InspectArgs;
use crate::console;
use crate::failure::Failure;

/// Prints what is at the path, for people or as JSON.
///
/// # Errors
/// [`Failure`] when there is no model, or a part of it can't be read.
pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let facts = facts::collect(&args.path, args.units)?;
    let text = match args.json {
        true => serde_json::to_string(&facts).expect("strings and numbers are JSON") + "\n",
        false => table::render(&facts),
    };
    Ok(console::print(&text)?)
}
